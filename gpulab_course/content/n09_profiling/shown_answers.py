"""Wrong answers that are common in notebook 09, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("09-timelines", "a cause that is not in the list", "", "is not one of"),
    ShownAnswer("09-timelines", "returns only the causes", "", "four pairs"),
    ShownAnswer("09-timelines", "B changes its arguments", "", "leaves other values in its arguments"),
    ShownAnswer("09-timelines", "B keeps results by array", "", "not the same as"),
    ShownAnswer("09-timelines", "A does less work", "", "not the same as"),
    ShownAnswer("09-nvtx", "marks instead of ranges", "", 'no range has the name "layer 0"'),
    ShownAnswer("09-nvtx", "numbered from 1", "", "from 0"),
    ShownAnswer("09-nvtx", "the range is never ended", "", "never ended"),
    ShownAnswer("09-nvtx", "does not return the result", "", "does not come back"),
    ShownAnswer("09-nvtx", "returns one function", "", "a list of 4 functions"),
    ShownAnswer("09-first", "the kernel's own factor", "", "the rest of the program stays"),
    ShownAnswer("09-first", "the share of the time that is saved", "", "the share of the time that is saved"),
    ShownAnswer("09-first", "the time after divided by the time before", "", "the other way round"),
    ShownAnswer("09-first", "returns only the name", "", "how many times as fast"),
    ShownAnswer("09-first", "names a copy instead of a kernel", "", "the program's kernels are"),
    ShownAnswer("09-roofline", "requested bytes", "", "caches deliver a part"),
    ShownAnswer("09-roofline", "bytes from L2", "", "not those that memory moved"),
    ShownAnswer("09-roofline", "FLOP/s instead of GFLOP/s", "", "are GFLOP/s"),
    ShownAnswer("09-roofline", "returns one number", "", "Return three numbers"),
    ShownAnswer("09-roofline", "returns nothing", "", "returns nothing"),
    ShownAnswer("09-throttled", "a high temperature counts as heat", "", "the reported reason is power"),
    ShownAnswer("09-throttled", "ignores the power brake", "", "power brake"),
    ShownAnswer("09-throttled", "the share in percent", "", "at most 1"),
    ShownAnswer("09-throttled", "returns only the cause", "", "Return a cause"),
    ShownAnswer("09-throttled", "returns nothing", "", "returns nothing"),
)
