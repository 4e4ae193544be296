"""Wrong answers that are common in notebook 09, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("09-timelines", "another word", "", "is not one of"),
    ShownAnswer("09-timelines", "names alone", "", "four pairs"),
    ShownAnswer("09-timelines", "B in place", "", "its arguments have other values"),
    ShownAnswer("09-timelines", "B by array", "", "not the same as"),
    ShownAnswer("09-timelines", "less work", "", "not the same as"),
    ShownAnswer("09-nvtx", "marks", "", 'no range has the name "layer 0"'),
    ShownAnswer("09-nvtx", "numbered from 1", "", "from 0"),
    ShownAnswer("09-nvtx", "ended by nobody", "", "never ended"),
    ShownAnswer("09-nvtx", "no result", "", "does not come back"),
    ShownAnswer("09-nvtx", "one function", "", "a list of 4 functions"),
    ShownAnswer("09-first", "its own factor", "", "the rest of the program stays"),
    ShownAnswer("09-first", "the share saved", "", "the share of the time that is saved"),
    ShownAnswer("09-first", "after by before", "", "the other way round"),
    ShownAnswer("09-first", "no figure", "", "how many times as fast"),
    ShownAnswer("09-first", "a copy", "", "its kernels are"),
    ShownAnswer("09-roofline", "requested bytes", "", "caches deliver a part"),
    ShownAnswer("09-roofline", "bytes from L2", "", "not those that memory moved"),
    ShownAnswer("09-roofline", "FLOP/s", "", "are GFLOP/s"),
    ShownAnswer("09-roofline", "one number", "", "return three numbers"),
    ShownAnswer("09-roofline", "nothing", "", "returns nothing"),
    ShownAnswer("09-throttled", "hot means heat", "", "the reported reason is power"),
    ShownAnswer("09-throttled", "no power brake", "", "power brake"),
    ShownAnswer("09-throttled", "per cent", "", "at most 1"),
    ShownAnswer("09-throttled", "only the cause", "", "return a cause"),
    ShownAnswer("09-throttled", "nothing", "", "returns nothing"),
)
