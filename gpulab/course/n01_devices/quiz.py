"""Questions of notebook 01."""

from gpulab.teach.question import Choice, Question

TITLE = "Device and capability: six questions"

QUESTIONS = (
    Question(
        "A property reads “120”. Which compute capability is that?",
        (
            Choice("12.0", "Everything but the last digit is the major version.", right=True),
            Choice("1.20", "The minor version is one digit, the last."),
            Choice("1.2", "That would read “12”; capabilities that old are long unsupported."),
        ),
    ),
    Question(
        "GPU A has capability 7.5, GPU B has 7.0. Which is faster?",
        (
            Choice(
                "The numbers do not tell: other figures do",
                "A capability lists features and limits; speed comes from SMs, clocks and memory.",
                right=True,
            ),
            Choice(
                "A: the newer design is the faster", "A T4 (7.5) has a third of a V100's (7.0) bandwidth."
            ),
            Choice("B: “.0” marks the data-centre GPU", "It happens so for T4 and V100; 12.0 is a GeForce."),
        ),
    ),
    Question(
        "Machine code (cubin) was built for sm_80. On which other device does it load?",
        (
            Choice("8.6", "Same major version and an equal or later minor one.", right=True),
            Choice("9.0", "Another major version needs other machine code, or PTX."),
            Choice("7.5", "Never on an older one."),
        ),
    ),
    Question(
        "Which launch fails on every NVIDIA GPU of today?",
        (
            Choice("a block of 33 × 32 threads", "1,056 threads are above 1,024.", right=True),
            Choice("a block of 32 × 32 threads", "That is 1,024, the limit itself."),
            Choice("a grid of 70,000 blocks in x", "x goes to 2,147,483,647; y and z stop at 65,535."),
        ),
    ),
    Question(
        "When is a CUDA context made?",
        (
            Choice("At the first call that needs the device", "Initialisation is lazy.", right=True),
            Choice("When CuPy is imported", "An import touches no device; it works without a driver."),
            Choice("At the first kernel, not before it", "An allocation or a copy needs the context, too."),
            Choice("At `cp.cuda.Device(0).use()`", "Nothing has to be selected: 0 is current."),
        ),
    ),
    Question(
        "A text says that an A100's memory delivers 460 GB/s. What went wrong?",
        (
            Choice(
                "It is what one HBM2e stack can give",
                "An A100 has five stacks: 1.6 TB/s with 40 GB (HBM2), 2.0 TB/s with 80 GB (HBM2e).",
                right=True,
            ),
            Choice("It is the rate in one direction, and reads and writes add up", "HBM's peak counts both."),
            Choice(
                "It is measured, and the data sheet's number is a peak", "Programs reach well over 1 TB/s."
            ),
        ),
    ),
)
