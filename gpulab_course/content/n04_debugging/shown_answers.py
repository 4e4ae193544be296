"""Wrong answers that are common in notebook 04, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("04-whodunit", "waits in every run", "", "First run the program without"),
    ShownAnswer("04-whodunit", "the host never waits", "", "never waited"),
    ShownAnswer("04-whodunit", "counts from 0", "", "numbered from 1"),
    ShownAnswer("04-whodunit", "returns only the name", "", "the number of its launch"),
    ShownAnswer("04-whodunit", "does not run the program", "", "never runs the program"),
    ShownAnswer("04-freed", "waits for the device", "counts", "leaves the host free"),
    ShownAnswer("04-freed", "orders the streams only for small arrays", "orders", "another order"),
    ShownAnswer("04-freed", "one stream instead of two", "counts", "two streams"),
    ShownAnswer("04-freed", "a list that keeps all arrays", "counts", "only the memory of the result"),
    ShownAnswer("04-freed", "memory without a pool", "counts", "cudaFree lets the host wait"),
    ShownAnswer("04-hunt", "looks at arrays before the steps run", "", "contains old values"),
    ShownAnswer("04-hunt", "returns a flat index", "", "(row, column)"),
    ShownAnswer("04-hunt", "tests sums instead of cells", "", "Infinity is not NaN"),
    ShownAnswer("04-hunt", "searches columns first", "", "row by row"),
    ShownAnswer("04-hunt", "runs each step twice", "", "must run once, in order"),
    ShownAnswer("04-places", "the given kernel, unchanged", "results", "widen a factor"),
    ShownAnswer("04-places", "adds in 32 bits", "results", "2,147,483,647"),
    ShownAnswer("04-places", "unsigned instead of 64 bits", "results", "unsigned wraps"),
    ShownAnswer("04-places", "only one line is repaired", "results", "in both lines"),
    ShownAnswer("04-places", "no guard", "results", "beyond n"),
    ShownAnswer("04-barrier", "the given kernel, unchanged", "hazards", ""),
    ShownAnswer("04-barrier", "__syncwarp() instead of __syncthreads()", "results", ""),
    ShownAnswer("04-barrier", "a barrier in each branch", "results", "every one of them"),
)
