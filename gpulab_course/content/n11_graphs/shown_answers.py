"""Wrong answers that are common in notebook 11, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("11-replay", "eager", "counts", "one launch for three kernels"),
    ShownAnswer("11-replay", "warms up on x", "results", "warm up on a copy"),
    ShownAnswer("11-replay", "waits inside", "results", "While a stream captures, nothing runs"),
    ShownAnswer("11-replay", "rebinds", "results", "a graph contains addresses, not names"),
    ShownAnswer("11-replay", "on the host", "results", "stay on the device"),
    ShownAnswer("11-static", "as given", "results", "which the graph was captured"),
    ShownAnswer("11-static", "captures for every request", "counts", "Capture once"),
    ShownAnswer("11-static", "answers by way of the host", "counts", "Keep the answers on the device"),
    ShownAnswer("11-static", "no graph at all", "counts", "with a launch of the graph"),
    ShownAnswer("11-static", "a graph for show", "counts", "return what it has computed"),
    ShownAnswer("11-fork", "one after the other", "counts", "run one after the other"),
    ShownAnswer("11-fork", "no join", "results", "before end_capture()"),
    ShownAnswer("11-fork", "waits on the host", "results", "While a stream captures"),
    ShownAnswer("11-fork", "rebinds the input", "results", "All rows contain the first"),
    ShownAnswer("11-fork", "no graph", "counts", "once for each input"),
    ShownAnswer("11-noise", "the round is fixed", "results", "Every launch drew round 0"),
    ShownAnswer("11-noise", "advances first", "results", "one round ahead"),
    ShownAnswer("11-noise", "by way of the host", "results", "stay on the device"),
    ShownAnswer("11-noise", "no graph", "counts", "with a launch of the graph"),
    ShownAnswer("11-noise", "as int64", "results", "should be uint32"),
)
