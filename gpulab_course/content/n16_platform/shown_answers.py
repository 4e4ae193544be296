"""Wrong answers that are common in notebook 16, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("16-matrix", "refuses every target with an a", "", "the GPU that it names"),
    ShownAnswer("16-matrix", "treats an f as an a", "", "With an f it runs on its own minor"),
    ShownAnswer("16-matrix", "cannot read an f", "", "invalid literal"),
    ShownAnswer("16-matrix", "takes the oldest target", "", "the driver takes the newest"),
    ShownAnswer("16-matrix", "returns True or False", "", "one of the targets"),
    ShownAnswer("16-wheel", "no PTX", "", "PTX is missing"),
    ShownAnswer("16-wheel", "PTX of all capabilities", "", "One PTX target is enough"),
    ShownAnswer("16-wheel", "only PTX", "", "no machine code"),
    ShownAnswer("16-wheel", "newest first", "", "in the order of the numbers"),
    ShownAnswer("16-wheel", "returns a string", "", "Return a list"),
    ShownAnswer("16-variables", "six runs without a variable", "", "differs from run to run"),
    ShownAnswer("16-variables", "a thousand runs", "", "are enough"),
    ShownAnswer("16-variables", "leaves out one variable", "", "each of the 6"),
    ShownAnswer("16-variables", "returns what changes, but not when", "", "Return (observation, when)"),
    ShownAnswer("16-variables", "reports “any” for every variable", "", "set late, it changes nothing"),
    ShownAnswer("16-translate", "a third stream", "", "PyTorch's lines use two"),
    ShownAnswer(
        "16-translate", "does not subtract the bytes used before", "", "memory_allocated counts the bytes"
    ),
    ShownAnswer("16-translate", "returns z on the host", "", "on the GPU"),
    ShownAnswer("16-translate", "returns only z", "", "a pair"),
    ShownAnswer("16-translate", "does not add 1", "", "other numbers"),
    ShownAnswer("16-warp64", "assumes 32 lanes", "", "counts are wrong"),
    ShownAnswer("16-warp64", "assumes 64 lanes", "", "that there are 64 lanes"),
    ShownAnswer("16-warp64", "a mask of 32 bits", "", "64 bits"),
    ShownAnswer("16-warp64", "__popc() instead of __popcll()", "", "__popcll"),
    ShownAnswer("16-warp64", "one thread adds all elements", "", "busiest warp"),
)
