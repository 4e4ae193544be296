"""Questions of notebook 00."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "Start here"

QUESTIONS = (
    Question(
        "A picture's caption says “modelled on virtual A100”. What may you conclude?",
        (
            Choice(
                "The kernel really ran; only its times are estimates",
                "Results and counts come from executing every instruction, on the CPU; time is a model.",
                right=True,
            ),
            Choice(
                "An A100 ran the kernel somewhere else, and was timed",
                "That would say “recorded”, with a date and a driver version.",
            ),
            Choice("Results are estimates, too", "The virtual GPU executes your code, bit for bit."),
        ),
    ),
    Question(
        "You open this notebook on a laptop twice as fast, also without a GPU. Which of its numbers change?",
        (
            Choice(
                "Only those from the host's clock, such as NumPy's time",
                "Counts follow from your code, modelled times from the modelled device's figures.",
                right=True,
            ),
            Choice(
                "All times, the modelled ones as well",
                "A modelled time does not know on which computer it is computed.",
            ),
            Choice("None: everything here is modelled", "NumPy ran on your computer and was measured there."),
        ),
    ),
    Question(
        "A kernel opens with if (i >= n) return; and runs as 5 blocks of 256 threads for 1,200 elements. "
        "What do the spare threads do?",
        (
            Choice(
                "They run, and return at the guard", "80 threads compute i ≥ n and skip the rest.", right=True
            ),
            Choice(
                "They are never started",
                "A launch always starts whole blocks: 1,280 threads.",
            ),
            Choice(
                "They redo the last elements, which does no harm",
                "Each thread computes the index you wrote down, and nobody else's.",
            ),
        ),
    ),
    Question(
        "Who turns the CUDA C++ text of `cp.RawKernel` into code for the device?",
        (
            Choice("NVRTC, while Python runs", "It compiles at run time; CuPy keeps the result.", right=True),
            Choice("nvcc, when CuPy is installed", "Your text did not exist then."),
            Choice("The driver: it reads CUDA C++", "The driver reads PTX or machine code, never C++."),
        ),
    ),
    Question(
        "A kernel writes two floats past its array on a real GPU. What is the most likely outcome?",
        (
            Choice(
                "Silence, and perhaps a wrong number elsewhere",
                "Pools round sizes up and pages are large, so a near miss usually lands in mapped memory.",
                right=True,
            ),
            Choice(
                "An exception at that line",
                "Only where the page is not mapped at all, and then later and without a line.",
            ),
            Choice(
                "The write is ignored, since the GPU knows the array's length",
                "A kernel gets an address. The hardware has no idea of your array's length.",
            ),
        ),
    ),
    Question(
        "A stopwatch around `vector_add(grid, block, args)` reads 5 µs for any size. What was timed?",
        (
            Choice(
                "Queueing the launch; the kernel runs later",
                "Wait with `cp.cuda.Device().synchronize()` or use events, as notebook 07 does.",
                right=True,
            ),
            Choice(
                "The kernel: a GPU adds any number of elements at once",
                "A million additions take longer than a thousand: threads wait for a place on an SM.",
            ),
            Choice("Compiling, at the first call", "That takes far longer, and only once."),
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
        "Four blocks of 256 threads run on a GPU of 108 SMs with 64 places each. Why does the chart say "
        "theoretical occupancy 100 %, and what would you look at instead?",
        (
            "Theoretical occupancy says how many warps an SM could hold, by registers and block size.",
            "Achieved occupancy counts the warps that were there: 8 of 64 places on each SM with a block.",
            "108 - 4 = 104 SMs had no block at all: the grid is too small for the device.",
        ),
    ),
)
