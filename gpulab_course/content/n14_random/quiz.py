"""Questions of notebook 14."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "Random numbers, reproducibility"

QUESTIONS = (
    Question(
        "A sum by float atomics differs from run to run in its last digits. Which change fixes it?",
        (
            Choice("seeding all generators", "Nothing random is drawn: the order of additions varies."),
            Choice(
                "a fixed tree over partial sums",
                "In a fixed tree, the same numbers are always added to each other.",
                right=True,
            ),
            Choice(
                "a synchronize() after the kernel",
                "The host waits for the end of the kernel, but the order within the kernel is the same.",
            ),
            Choice(
                "adding in double and rounding",
                "Sums in double differ less often, but sometimes the last bit still differs.",
            ),
        ),
    ),
    Question(
        "Why is Philox suitable for GPUs?",
        (
            Choice(
                "number i is computed from i and the key alone",
                "No state has to be passed from thread to thread.",
                right=True,
            ),
            Choice("it is the fastest generator", "XORWOW needs fewer instructions per number."),
            Choice(
                "its numbers are truly random, not found by a rule",
                "The numbers are computed from the counter and the key.",
            ),
        ),
    ),
    Question(
        "A kernel seeds every thread with the time and its thread number. What is wrong with it?",
        (
            Choice(
                "nothing: all threads differ, and so do all the runs",
                "The sequences can overlap, and no run can be repeated.",
            ),
            Choice(
                "no run can be repeated, and sequences may overlap",
                "One seed and a subsequence per thread avoid both.",
                right=True,
            ),
            Choice("seeding is too slow", "Seeding takes some time, but this is not the error."),
        ),
    ),
    Question(
        "A dropout mask must be the same for any grid. What may the number of element i depend on?",
        (
            Choice("the thread that computes it", "The grid decides which thread this is."),
            Choice(
                "seed, block number and thread number", "In another grid, a block processes other elements."
            ),
            Choice(
                "seed, offset of the launch, and i", "None of them depends on the launch shape.", right=True
            ),
        ),
    ),
    Question(
        "A program begins with torch.manual_seed(0). Which of these does it determine?",
        (
            Choice("what CuPy draws", "CuPy has its own generators."),
            Choice(
                "what torch.rand draws on the GPU",
                "torch.manual_seed seeds the generators of the CPU and of all GPUs.",
                right=True,
            ),
            Choice(
                "the last digits of a sum by index_add_ on the GPU",
                "The last digits depend on the order of atomics.",
            ),
            Choice(
                "the order of a Python set of strings", "PYTHONHASHSEED determines it, before Python starts."
            ),
        ),
    ),
    Question(
        "How do you save the state of cp.random.rand?",
        (
            Choice(
                "cp.random.get_state()",
                "This function does not exist: the state of cuRAND's host generators cannot be read.",
            ),
            Choice("pickle.dumps(cp.random.get_random_state())", "CuPy's random state cannot be pickled."),
            Choice(
                "you cannot: seed it at this point, or draw from a Generator",
                "A Generator's states are an array on the device.",
                right=True,
            ),
        ),
    ),
    Question(
        "use_deterministic_algorithms(True) is set. What is the effect?",
        (
            Choice("the same results at the same speed", "Some operations take several times as long."),
            Choice(
                "fixed algorithms, some of them slower, and errors if there is none",
                "An error is better than a result that differs.",
                right=True,
            ),
            Choice("the same results on every GPU", "Only on the same GPU, with the same versions."),
        ),
    ),
    WhyQuestion(
        "Why is a result that is the same in every run not always right, and why is it useful nevertheless?",
        (
            "Rounding remains: a fixed order returns one of many equally good sums, always the same one.",
            "Results that differ must be compared with a tolerance, which can hide an error.",
            "A run that failed can be repeated with the same numbers and masks, and examined.",
        ),
    ),
)
