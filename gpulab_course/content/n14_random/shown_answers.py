"""Wrong answers that are common in notebook 14, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("14-philox", "9 rounds", "results", "9 rounds"),
    ShownAnswer("14-philox", "11 rounds", "results", "11 rounds"),
    ShownAnswer("14-philox", "the key does not grow", "results", "grow after each round"),
    ShownAnswer("14-philox", "ignores the upper 32 bits of the counter", "results", "upper 32 bits belong"),
    ShownAnswer("14-philox", "multiplies with signs", "results", "without signs"),
    ShownAnswer("14-sum", "adds neighbouring elements first", "results", "not bit for bit"),
    ShownAnswer("14-sum", "only one tile per block", "results", "each block goes on"),
    ShownAnswer("14-sum", "no guard", "results", "may have fewer"),
    ShownAnswer("14-sum", "-0 beyond n", "results", "sign of a zero"),
    ShownAnswer("14-sum", "all threads write", "hazards", "One thread writes"),
    ShownAnswer("14-dropout", "the key depends on the block", "results", "must not depend on the thread"),
    ShownAnswer("14-dropout", "only 32 bits of the counter", "results", "counters have 64 bits"),
    ShownAnswer("14-dropout", "compares floats instead of integers", "results", "unsigned integers"),
    ShownAnswer("14-dropout", "only one element per thread", "results", "so use a loop"),
    ShownAnswer("14-dropout", "no guard", "results", "Guard the end"),
    ShownAnswer("14-state", "only Python's state", "", "NumPy's and GPU 0's"),
    ShownAnswer("14-state", "only NumPy's state", "", "Python's and GPU 0's"),
    ShownAnswer("14-state", "only the states of the GPUs", "", "Python's and NumPy's"),
    ShownAnswer("14-state", "saves other names of the same states", "", "restore it before the second"),
    ShownAnswer("14-state", "returns the results in reverse order", "", "two results of work()"),
    ShownAnswer("14-switch", "turns all switches on", "", "unnecessarily"),
    ShownAnswer("14-switch", "turns no switch on", "", "leaves out"),
    ShownAnswer("14-switch", "only two runs for each set", "", "agree prove nothing"),
    ShownAnswer("14-switch", "a thousand runs", "", "are enough"),
    ShownAnswer("14-switch", "returns the number of switches", "", "set of names"),
)
