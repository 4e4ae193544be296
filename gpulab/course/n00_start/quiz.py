"""Questions of notebook 00."""

from gpulab.teach.question import Choice, Question

TITLE = "Start here: five questions"

QUESTIONS = (
    Question(
        "A picture's caption says “modelled on virtual A100”. What may you conclude?",
        (
            Choice(
                "An A100 ran the kernel and was timed",
                "That would say “measured” or, for a shipped run, “recorded”.",
            ),
            Choice(
                "The kernel really ran, its times come from a formula",
                "Results and counters come from executing the kernel; time is a model.",
                right=True,
            ),
            Choice(
                "Nothing ran; the picture is an illustration", "The virtual GPU executes every instruction."
            ),
        ),
    ),
    Question(
        "A kernel is launched with 5 blocks of 256 threads for 1,200 elements. What do the spare threads do?",
        (
            Choice("They are never started", "A launch always starts whole blocks: 1,280 threads."),
            Choice("They run and fail the guard", "80 threads compute i ≥ n and skip the body.", right=True),
            Choice("They redo the last elements", "Each thread computes only the index you wrote down."),
        ),
    ),
    Question(
        "Which step turns CUDA C++ text into code for the device while Python runs?",
        (
            Choice("NVRTC", "It compiles at run time; CuPy caches what it makes.", right=True),
            Choice("cuBLAS", "That is a library of ready-made matrix kernels."),
            Choice("The SM", "An SM executes instructions; it compiles nothing."),
        ),
    ),
    Question(
        "A kernel writes two floats past its array on a real GPU. What is the most likely outcome?",
        (
            Choice(
                "An exception at that line",
                "Only where the page is not mapped at all, and then later and without a line.",
            ),
            Choice(
                "Silence, and perhaps a wrong number elsewhere",
                "Pools round sizes up and pages are large, so a near miss usually lands in mapped memory.",
                right=True,
            ),
            Choice("The write is ignored", "Hardware has no idea of your array's length."),
        ),
    ),
    Question(
        "cp.asnumpy(x) is called right after a launch. When does it return?",
        (
            Choice("At once; the copy runs later", "The result is a host array: it must be filled by then."),
            Choice(
                "After the kernel and the copy are done",
                "The copy is ordered after the kernel and the host waits for it.",
                right=True,
            ),
            Choice("After every stream of the device is idle", "It waits for its own stream's work."),
        ),
    ),
)
