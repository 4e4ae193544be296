"""Wrong answers that are common in notebook 17, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("17-estimate", "bits", "", "These are bits"),
    ShownAnswer("17-estimate", "GB as 2^30", "", "not 2³⁰"),
    ShownAnswer("17-estimate", "milliseconds", "", "These are milliseconds"),
    ShownAnswer("17-estimate", "nanoseconds", "", "These are nanoseconds"),
    ShownAnswer("17-estimate", "a text", "", "must be a number"),
    ShownAnswer("17-diagnose", "the symptom", "", "that is a symptom"),
    ShownAnswer("17-diagnose", "busy is bad", "", "the cause is 'nothing'"),
    ShownAnswer("17-diagnose", "always the same", "", "the cause is"),
    ShownAnswer("17-diagnose", "16 sectors or nothing", "", "the cause is 'uncoalesced'"),
    ShownAnswer("17-diagnose", "in words", "", "name one of"),
    ShownAnswer("17-bug", "0 for the least", "results", "can be negative"),
    ShownAnswer("17-bug", "above the least int only", "results", "even the smallest int"),
    ShownAnswer("17-bug", "ties by luck", "results", "the first counts"),
    ShownAnswer("17-bug", "no guard of rows", "results", "more blocks than there are rows"),
    ShownAnswer("17-bug", "all threads write", "hazards", "one thread of one block"),
    ShownAnswer("17-refute", "another device", "", "measures on another device"),
    ShownAnswer("17-refute", "one run each", "", "cold first run"),
    ShownAnswer("17-refute", "upside down", "", "Divide the time of the first setting"),
    ShownAnswer("17-refute", "200 runs", "", "60 are enough"),
    ShownAnswer("17-refute", "True or False", "", "return 'holds' or 'refuted'"),
    ShownAnswer("17-capstone", "no maximum", "results", "exponential that overflows"),
    ShownAnswer("17-capstone", "joined as they are", "results", "where warps or blocks are combined"),
    ShownAnswer("17-capstone", "0 for the least score", "results", "subtract the largest score"),
    ShownAnswer("17-capstone", "no guard of heads", "results", "can be `heads` or more"),
    ShownAnswer("17-capstone", "all warps write", "hazards", "Let one warp write"),
    ShownAnswer(
        "17-capstone", "the block with the largest number combines", "orders", "the last ticket of its head"
    ),
)
