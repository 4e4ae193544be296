"""Questions of notebook 00."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "Start here"

QUESTIONS = (
    Question(
        "A picture's caption says “modelled on virtual A100”. What can you conclude?",
        (
            Choice(
                "The kernel really ran; only its times are estimates",
                (
                    "Results and counts come from executing every instruction on the CPU. The times come "
                    "from a model."
                ),
                right=True,
            ),
            Choice(
                "The kernel ran on an A100 somewhere else, and its time was measured",
                "A time from a real A100 would have the label “recorded”, with a date and a driver version.",
            ),
            Choice("The results are estimates as well", "The virtual GPU executes your code, bit for bit."),
        ),
    ),
    Question(
        "You run this notebook on a laptop that is twice as fast, also without a GPU. Which numbers change?",
        (
            Choice(
                "Only those from the host's clock, such as NumPy's time",
                (
                    "Counts follow from your code, and modelled times from the properties of the modelled "
                    "device."
                ),
                right=True,
            ),
            Choice(
                "All times, the modelled ones as well",
                "A modelled time does not depend on the computer that computes it.",
            ),
            Choice(
                "None: everything here is modelled",
                "NumPy runs on your computer, and its time is measured there.",
            ),
        ),
    ),
    Question(
        "A kernel starts with `if (i >= n) return;` and runs with 5 blocks of 256 threads for 1,200 "
        "elements. What do the spare threads do?",
        (
            Choice(
                "They run, and return at the guard",
                "80 threads find that i ≥ n, and skip the rest.",
                right=True,
            ),
            Choice(
                "They are never started",
                "A launch always starts whole blocks: 1,280 threads.",
            ),
            Choice(
                "They redo the last elements, which does no harm",
                "Each thread computes its own index, so no two threads have the same one.",
            ),
        ),
    ),
    Question(
        "What turns the CUDA C++ source of `cp.RawKernel` into code for the device?",
        (
            Choice(
                "NVRTC, while Python runs",
                "NVRTC compiles the source at run time, and CuPy stores the result.",
                right=True,
            ),
            Choice("nvcc, when CuPy is installed", "Your source did not exist at that time."),
            Choice("The driver: it reads CUDA C++", "The driver accepts PTX or machine code, but not C++."),
        ),
    ),
    Question(
        "A kernel writes two floats past its array on a real GPU. What is the most likely outcome?",
        (
            Choice(
                "No error, and perhaps a wrong number elsewhere",
                "Pools round sizes up, and pages are large, so the address usually belongs to mapped memory.",
                right=True,
            ),
            Choice(
                "An exception at that line",
                (
                    "An error is raised only if the page is not mapped at all, and then later and without a "
                    "line."
                ),
            ),
            Choice(
                "The write is ignored, since the GPU knows the array's length",
                (
                    "A kernel receives only an address. The hardware has no information about the length "
                    "of your array."
                ),
            ),
        ),
    ),
    Question(
        "A host clock around `vector_add(grid, block, args)` shows 5 µs for any size. What was measured?",
        (
            Choice(
                "Queueing the launch; the kernel runs later",
                "Wait with `cp.cuda.Device().synchronize()`, or use events, as in notebook 07.",
                right=True,
            ),
            Choice(
                "The kernel: a GPU adds any number of elements at once",
                (
                    "A million additions take longer than a thousand, because more bytes must move and "
                    "blocks wait for free slots on an SM."
                ),
            ),
            Choice("Compiling, at the first call", "Compiling takes far longer, and happens only once."),
        ),
    ),
    WhyQuestion(
        "A launch returns at once. Why does `print(y)` wait, and why can it not show an old value?",
        (
            "Printing needs the values in host memory, so they are copied from the device.",
            "The copy enters the same queue (stream) as the kernels and runs after them, in order.",
            "The host waits until the copy is done.",
        ),
    ),
    WhyQuestion(
        "Four blocks of 256 threads run on a GPU with 108 SMs of 64 warp slots each. Why does the chart show "
        "a theoretical occupancy of 100 %, and which value would you look at instead?",
        (
            (
                "Theoretical occupancy shows how many warps an SM could hold, given the registers and the "
                "block size."
            ),
            "Achieved occupancy counts the warps that were present: 8 of 64 slots on each SM with a block.",
            "108 − 4 = 104 SMs had no block at all, because the grid is too small for the device.",
        ),
    ),
)
