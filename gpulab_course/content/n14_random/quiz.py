"""Questions of notebook 14."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "Random numbers, reproducibility"

QUESTIONS = (
    Question(
        "A sum by float atomics differs from run to run in its last digits. Which change mends it?",
        (
            Choice("seeding all generators", "Nothing random is drawn: the order of additions varies."),
            Choice("a fixed tree over partial sums", "Every number then meets the same ones.", right=True),
            Choice("a synchronize() behind the kernel", "It waits for the end; the order within stays."),
            Choice("adding in double and rounding", "Fewer bits differ, and sometimes still the last one."),
        ),
    ),
    Question(
        "What makes Philox fit for GPUs?",
        (
            Choice(
                "number i is computed from i and the key alone",
                "No state has to be passed from thread to thread.",
                right=True,
            ),
            Choice("it is the fastest generator", "XORWOW needs fewer instructions a number."),
            Choice("its numbers are truly random, not found by a rule", "They follow from counter and key."),
        ),
    ),
    Question(
        "A kernel seeds every thread with the time and its thread number. What is wrong with it?",
        (
            Choice(
                "nothing: all threads differ, and so do all the runs",
                "They may overlap, and no run can be repeated.",
            ),
            Choice(
                "no run can be repeated, and sequences may overlap",
                "One seed, and a subsequence for each thread, has neither fault.",
                right=True,
            ),
            Choice("seeding is too slow", "It costs something, but that is not what is wrong."),
        ),
    ),
    Question(
        "A dropout mask is to be the same for any grid. What may element i's number depend on?",
        (
            Choice("the thread that comes to it", "Which one that is depends on the grid."),
            Choice("seed, block number and thread number", "A block has other elements in another grid."),
            Choice("seed, offset of the launch, and i", "Nothing of the launch's shape.", right=True),
        ),
    ),
    Question(
        "torch.manual_seed(0) stands at the top. Which of these does it decide?",
        (
            Choice("what CuPy draws", "CuPy has generators of its own."),
            Choice(
                "what torch.rand draws on the GPU", "It seeds the CPU's and all GPUs' generators.", right=True
            ),
            Choice("what index_add_ sums up", "That depends on the order of atomics."),
            Choice("the order of a Python set of strings", "PYTHONHASHSEED does, before Python starts."),
        ),
    ),
    Question(
        "How do you save where cp.random.rand stands?",
        (
            Choice("cp.random.get_state()", "There is none: cuRAND's host generators cannot be read."),
            Choice("pickle.dumps(cp.random.get_random_state())", "It cannot be pickled."),
            Choice(
                "not at all: seed it there, or draw from a Generator",
                "A Generator's states are an array on the device.",
                right=True,
            ),
        ),
    ),
    Question(
        "use_deterministic_algorithms(True) is set. What comes of it?",
        (
            Choice("the same results at the same speed", "Some operations take several times as long."),
            Choice(
                "fixed algorithms, slower ones among them, and errors where there is none",
                "Better an error than a result that differs.",
                right=True,
            ),
            Choice("the same results on every GPU", "Only on the same GPU, with the same versions."),
        ),
    ),
    WhyQuestion(
        "Why is a result that is the same in every run still not the right one, and why ask for "
        "it all the same?",
        (
            "Rounding stays: a fixed order gives one of many equally good sums, the same one each time.",
            "What differs from run to run is compared with a tolerance, which may hide a fault.",
            "A run that failed can be repeated, with the same numbers and masks, and looked at.",
        ),
    ),
)
