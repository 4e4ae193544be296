"""Wrong answers that are common in notebook 16, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("16-matrix", "nothing takes an a", "", "the GPU that it names"),
    ShownAnswer("16-matrix", "an f is an a", "", "With an f it runs on its own minor"),
    ShownAnswer("16-matrix", "reads no f", "", "invalid literal"),
    ShownAnswer("16-matrix", "the oldest", "", "the driver takes the newest"),
    ShownAnswer("16-matrix", "whether, not what", "", "one of the targets"),
    ShownAnswer("16-wheel", "no PTX", "", "PTX is missing"),
    ShownAnswer("16-wheel", "PTX of all", "", "One PTX target is enough"),
    ShownAnswer("16-wheel", "PTX alone", "", "no machine code"),
    ShownAnswer("16-wheel", "newest first", "", "in the order of the numbers"),
    ShownAnswer("16-wheel", "a text", "", "return a list"),
    ShownAnswer("16-variables", "six runs without", "", "differs from run to run"),
    ShownAnswer("16-variables", "a thousand runs", "", "are enough"),
    ShownAnswer("16-variables", "one left out", "", "each of the 6"),
    ShownAnswer("16-variables", "what, not when", "", "return (observation, when)"),
    ShownAnswer("16-variables", "all at any time", "", "set late, it changes nothing"),
    ShownAnswer("16-translate", "a third stream", "", "PyTorch's lines use two"),
    ShownAnswer("16-translate", "less nothing", "", "memory_allocated counts the bytes"),
    ShownAnswer("16-translate", "to the host", "", "on the GPU"),
    ShownAnswer("16-translate", "z alone", "", "a pair"),
    ShownAnswer("16-translate", "without the 1", "", "other numbers"),
    ShownAnswer("16-warp64", "everything 32", "", "counts are wrong"),
    ShownAnswer("16-warp64", "everything 64", "", "that there are 64 lanes"),
    ShownAnswer("16-warp64", "a mask of 32 bits", "", "64 bits"),
    ShownAnswer("16-warp64", "__popc", "", "__popcll"),
    ShownAnswer("16-warp64", "one thread adds", "", "busiest warp"),
)
