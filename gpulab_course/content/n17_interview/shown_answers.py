"""Wrong answers that are common in notebook 17, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("17-estimate", "in bits", "", "These are bits"),
    ShownAnswer("17-estimate", "GB as 2^30 bytes", "", "not 2³⁰"),
    ShownAnswer("17-estimate", "in milliseconds", "", "These are milliseconds"),
    ShownAnswer("17-estimate", "in nanoseconds", "", "These are nanoseconds"),
    ShownAnswer("17-estimate", "returns a string", "", "must be a number"),
    ShownAnswer("17-diagnose", "names the symptom", "", "is a symptom"),
    ShownAnswer("17-diagnose", "takes a busy DRAM for a cause", "", "the cause is 'nothing'"),
    ShownAnswer("17-diagnose", "always names the same cause", "", "the cause is"),
    ShownAnswer("17-diagnose", "ignores fewer than 16 sectors per load", "", "the cause is 'uncoalesced'"),
    ShownAnswer("17-diagnose", "names the cause in other words", "", "Return one of"),
    ShownAnswer("17-bug", "the start value is 0", "results", "can be negative"),
    ShownAnswer("17-bug", "ignores the smallest int", "results", "even the smallest int"),
    ShownAnswer("17-bug", "does not compare the indices of equal elements", "results", "the first counts"),
    ShownAnswer("17-bug", "no guard for the rows", "results", "more blocks than there are rows"),
    ShownAnswer("17-bug", "all threads write", "hazards", "one thread of one block"),
    ShownAnswer("17-refute", "measures on another device", "", "measures on another device"),
    ShownAnswer("17-refute", "only one run for each setting", "", "cold first run"),
    ShownAnswer("17-refute", "divides the wrong way round", "", "Divide the time of the first setting"),
    ShownAnswer("17-refute", "200 runs", "", "60 are enough"),
    ShownAnswer("17-refute", "returns True or False", "", "Return 'holds' or 'refuted'"),
    ShownAnswer(
        "17-capstone", "does not subtract the largest score", "results", "exponential that overflows"
    ),
    ShownAnswer(
        "17-capstone", "combines the parts without rescaling", "results", "where warps or blocks are combined"
    ),
    ShownAnswer("17-capstone", "the largest score begins at 0", "results", "subtract the largest score"),
    ShownAnswer("17-capstone", "no guard for the heads", "results", "can be `heads` or more"),
    ShownAnswer("17-capstone", "all warps write", "hazards", "Let one warp write"),
    ShownAnswer(
        "17-capstone", "the last block number combines the parts", "orders", "the last ticket of its head"
    ),
)
