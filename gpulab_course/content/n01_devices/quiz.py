"""Questions of notebook 01."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "Devices"

QUESTIONS = (
    Question(
        "A property reads “120”. Which compute capability is that?",
        (
            Choice("1.20", "The minor version is one digit, the last."),
            Choice("12.0", "Everything but the last digit is the major version.", right=True),
            Choice("120.0", "No GPU has a three-digit major version."),
        ),
    ),
    Question(
        "GPU A has capability 7.5, GPU B has 7.0. Which is faster?",
        (
            Choice(
                "A, since its version is newer",
                "By its published bandwidth a T4 (7.5) is slower than a V100 (7.0).",
            ),
            Choice("B: a minor version of 0 means a data-centre GPU", "A T4 stands in data centres, too."),
            Choice(
                "nobody can tell from these two numbers alone",
                "A capability lists features and limits; speed comes from SMs, clocks and memory.",
                right=True,
            ),
        ),
    ),
    Question(
        "When does a process get its CUDA context?",
        (
            Choice("when CuPy is imported", "An import touches no device; it works without a driver."),
            Choice(
                "when it asks how many devices there are",
                "That initialises the driver, but makes no context.",
            ),
            Choice(
                "at the first call that needs device memory or a kernel",
                "Initialisation is lazy.",
                right=True,
            ),
        ),
    ),
    Question(
        "A program uses the GPU, then forks workers (multiprocessing's “fork”). In a worker, CuPy …",
        (
            Choice("works: the worker inherits the context", "A context cannot be inherited."),
            Choice(
                "fails with an initialisation error", "Use “spawn”, or fork before the first use.", right=True
            ),
            Choice("works, but on a copy of the device's memory", "Device memory is not copied by fork."),
        ),
    ),
    Question(
        "Which launch fails on every NVIDIA GPU of today?",
        (
            Choice("a block of 32 × 32 threads", "That is 1,024, the limit itself."),
            Choice("a block of 33 × 32 threads", "1,056 threads are above 1,024.", right=True),
            Choice("a grid of 70,000 blocks in x", "x goes to 2,147,483,647; y and z stop at 65,535."),
        ),
    ),
    Question(
        "A text says that an A100's memory delivers 460 GB/s. What went wrong?",
        (
            Choice(
                "that is what one HBM2e stack can give at most",
                "An A100 has five stacks; published are 1.6 TB/s (40 GB, HBM2) and 2.0 TB/s (80 GB, HBM2e).",
                right=True,
            ),
            Choice(
                "that is the rate of its NVLink connections together",
                "Published for its NVLink are 600 GB/s, both ways together, in an A100.",
            ),
            Choice(
                "nothing: programs reach about that much",
                "Programs come near the published 2.0 TB/s of an A100.",
            ),
        ),
    ),
    Question(
        "A monitor shows 0 W and 0 °C. What does a careful tool say instead?",
        (
            Choice(
                "the last reading that was not zero", "That would be an old number presented as a new one."
            ),
            Choice(
                "that the reading is not available, and why",
                "A reading that a machine cannot give is no zero.",
                right=True,
            ),
            Choice("an error that ends the program", "Other readings may be there; each stands alone."),
        ),
    ),
    WhyQuestion(
        "Which GPU would you rent for decoding with a model of 60 GB, and why?",
        (
            "It must hold the weights and the cache of keys and values: an A100 (80 GB published), an H200.",
            "Decoding reads all weights for each token and computes little: memory bandwidth decides.",
            (
                "The ratio of published bandwidths, not of TFLOP/s, is the speed-up at best: H200 over A100 "
                "about 2.4."
            ),
        ),
    ),
)
