"""Wrong answers that are common in notebook 11, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("11-replay", "no graph", "counts", "one launch for three kernels"),
    ShownAnswer("11-replay", "warms up on x", "results", "warm up on a copy"),
    ShownAnswer("11-replay", "waits during the capture", "results", "While a stream captures, nothing runs"),
    ShownAnswer(
        "11-replay", "assigns a new array to the name x", "results", "a graph contains addresses, not names"
    ),
    ShownAnswer("11-replay", "returns a host array", "results", "stay on the device"),
    ShownAnswer("11-static", "the given program, unchanged", "results", "which the graph was captured"),
    ShownAnswer("11-static", "captures for every request", "counts", "Capture once"),
    ShownAnswer("11-static", "copies answers to the host", "counts", "Keep the answers on the device"),
    ShownAnswer("11-static", "no graph", "counts", "with a launch of the graph"),
    ShownAnswer(
        "11-static", "launches a graph, but returns other results", "counts", "return what it has computed"
    ),
    ShownAnswer("11-fork", "the branches run one after the other", "counts", "run one after the other"),
    ShownAnswer("11-fork", "the second stream is not joined", "results", "before end_capture()"),
    ShownAnswer("11-fork", "the host waits during the capture", "results", "While a stream captures"),
    ShownAnswer(
        "11-fork", "assigns a new array to the input's name", "results", "All rows contain the first"
    ),
    ShownAnswer("11-fork", "no graph", "counts", "once for each input"),
    ShownAnswer("11-noise", "the round is captured as a constant", "results", "Every launch drew round 0"),
    ShownAnswer("11-noise", "advances the round before the draw", "results", "one round ahead"),
    ShownAnswer("11-noise", "copies rows to the host", "results", "stay on the device"),
    ShownAnswer("11-noise", "no graph", "counts", "with a launch of the graph"),
    ShownAnswer("11-noise", "converts to int64", "results", "should be uint32"),
)
