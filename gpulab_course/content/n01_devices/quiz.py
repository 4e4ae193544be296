"""Questions of notebook 01."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "Devices"

QUESTIONS = (
    Question(
        "A property is “120”. Which compute capability is this?",
        (
            Choice("1.20", "The minor version is only the last digit."),
            Choice("12.0", "All digits except the last one are the major version.", right=True),
            Choice("120.0", "No GPU has a three-digit major version."),
        ),
    ),
    Question(
        "GPU A has capability 7.5, GPU B has 7.0. Which is faster?",
        (
            Choice(
                "A, because its version is newer",
                "By its published bandwidth a T4 (7.5) is slower than a V100 (7.0).",
            ),
            Choice(
                "B: a minor version of 0 means a data-centre GPU", "A T4 (7.5) is a data-centre GPU as well."
            ),
            Choice(
                "these two numbers do not show it",
                "A capability shows features and limits. Speed comes from SMs, clocks and memory.",
                right=True,
            ),
        ),
    ),
    Question(
        "When is the CUDA context of a process created?",
        (
            Choice("when CuPy is imported", "An import does not use a device, and works without a driver."),
            Choice(
                "when the program queries the number of devices",
                "This query initializes the driver, but creates no context.",
            ),
            Choice(
                "at the first call that needs device memory or a kernel",
                "Initialization is lazy.",
                right=True,
            ),
        ),
    ),
    Question(
        "A program uses the GPU, then forks workers (multiprocessing's “fork”). In a worker, CuPy …",
        (
            Choice("works: the worker inherits the context", "A context cannot be inherited."),
            Choice(
                "fails with an initialization error", "Use “spawn”, or fork before the first use.", right=True
            ),
            Choice("works, but on a copy of the device's memory", "Device memory is not copied by fork."),
        ),
    ),
    Question(
        "Which launch fails on every current NVIDIA GPU?",
        (
            Choice("a block of 32 × 32 threads", "These are 1,024 threads, which is exactly the limit."),
            Choice("a block of 33 × 32 threads", "1,056 threads are above 1,024.", right=True),
            Choice("a grid of 70,000 blocks in x", "The limit is 2,147,483,647 in x, and 65,535 in y and z."),
        ),
    ),
    Question(
        "A text claims that the memory of an A100 delivers 460 GB/s. What is this number in fact?",
        (
            Choice(
                "the highest rate of one HBM2e stack",
                "An A100 has five stacks. The published rates are 1.6 TB/s (40 GB, HBM2) and 2.0 TB/s (80 "
                "GB, HBM2e).",
                right=True,
            ),
            Choice(
                "the rate of all its NVLink connections together",
                "The published NVLink rate of an A100 is 600 GB/s, both directions together.",
            ),
            Choice(
                "the rate that programs reach in practice",
                "Programs can come close to the published 2.0 TB/s of an A100.",
            ),
        ),
    ),
    Question(
        "A monitor shows 0 W and 0 °C. What should a careful tool show instead?",
        (
            Choice("the last reading that was not zero", "An old value would look like a new one."),
            Choice(
                "that the reading is not available, and why",
                "A reading that a machine cannot provide is not zero.",
                right=True,
            ),
            Choice("an error that ends the program", "Other readings may be available."),
        ),
    ),
    WhyQuestion(
        "Which GPU would you rent to generate text with a language model of 60 GB, and why?",
        (
            (
                "Its memory must hold the weights and the cache of keys and values, for example an A100 (80 "
                "GB) or an H200."
            ),
            "Each new token reads all weights and needs little arithmetic, so the memory bandwidth decides.",
            (
                "The best possible speed-up is the ratio of the bandwidths, not of the TFLOP/s. From an "
                "A100 to an H200, it is about 2.4."
            ),
        ),
    ),
)
