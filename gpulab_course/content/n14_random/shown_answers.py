"""Wrong answers that are common in notebook 14, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("14-philox", "9 rounds", "results", "9 rounds"),
    ShownAnswer("14-philox", "11 rounds", "results", "11 rounds"),
    ShownAnswer("14-philox", "the key stays", "results", "grow after each round"),
    ShownAnswer("14-philox", "no carry", "results", "upper 32 bits belong"),
    ShownAnswer("14-philox", "signed shifts", "results", "without signs"),
    ShownAnswer("14-sum", "neighbours first", "results", "not bit for bit"),
    ShownAnswer("14-sum", "one tile a block", "results", "each block goes on"),
    ShownAnswer("14-sum", "no guard", "results", "may have fewer"),
    ShownAnswer("14-sum", "-0 beyond n", "results", "sign of a zero"),
    ShownAnswer("14-sum", "all threads write", "hazards", "One thread writes"),
    ShownAnswer("14-dropout", "the block into the key", "results", "must not depend on the thread"),
    ShownAnswer("14-dropout", "32 bits of the counter", "results", "counters have 64 bits"),
    ShownAnswer("14-dropout", "compared as shares", "results", "unsigned integers"),
    ShownAnswer("14-dropout", "one element a thread", "results", "so use a loop"),
    ShownAnswer("14-dropout", "no guard", "results", "Guard the end"),
    ShownAnswer("14-state", "Python's only", "", "NumPy's and GPU 0's"),
    ShownAnswer("14-state", "NumPy's only", "", "Python's and GPU 0's"),
    ShownAnswer("14-state", "the GPUs' only", "", "Python's and NumPy's"),
    ShownAnswer("14-state", "other names", "", "restore it before the second"),
    ShownAnswer("14-state", "other results", "", "two results of work()"),
    ShownAnswer("14-switch", "all of them", "", "without need"),
    ShownAnswer("14-switch", "none", "", "leaves out"),
    ShownAnswer("14-switch", "two runs each", "", "agree prove nothing"),
    ShownAnswer("14-switch", "a thousand runs", "", "are enough"),
    ShownAnswer("14-switch", "how many", "", "set of names"),
)
