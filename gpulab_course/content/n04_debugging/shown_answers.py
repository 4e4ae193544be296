"""Wrong answers that are common in notebook 04, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("04-whodunit", "waits in every run", "", "Run it once without"),
    ShownAnswer("04-whodunit", "nobody waits", "", "never waited"),
    ShownAnswer("04-whodunit", "counts from 0", "", "numbered from 1"),
    ShownAnswer("04-whodunit", "the name alone", "", "the number of its launch"),
    ShownAnswer("04-whodunit", "does not run it", "", "never runs the program"),
    ShownAnswer("04-freed", "the device waits", "counts", "leaves the host free"),
    ShownAnswer("04-freed", "orders small ones only", "orders", "another order"),
    ShownAnswer("04-freed", "one stream", "counts", "two streams"),
    ShownAnswer("04-freed", "a list that keeps all", "counts", "only the memory of the result"),
    ShownAnswer("04-freed", "without a pool", "counts", "cudaFree lets the host wait"),
    ShownAnswer("04-hunt", "before they run", "", "contains old values"),
    ShownAnswer("04-hunt", "a flat index", "", "(row, column)"),
    ShownAnswer("04-hunt", "sums of cells", "", "Infinity is not NaN"),
    ShownAnswer("04-hunt", "columns first", "", "row by row"),
    ShownAnswer("04-hunt", "each step twice", "", "must run once, in order"),
    ShownAnswer("04-places", "as given", "results", "widen a factor"),
    ShownAnswer("04-places", "adds in 32 bits", "results", "2,147,483,647"),
    ShownAnswer("04-places", "unsigned", "results", "unsigned wraps"),
    ShownAnswer("04-places", "one line repaired", "results", "in both lines"),
    ShownAnswer("04-places", "no guard", "results", "beyond n"),
    ShownAnswer("04-barrier", "as given", "hazards", ""),
    ShownAnswer("04-barrier", "__syncwarp", "results", ""),
    ShownAnswer("04-barrier", "one barrier in each branch", "results", "every one of them"),
)
