"""Wrong answers that are common in notebook 07, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("07-stopwatch", "no warm-up", "", "first, cold call"),
    ShownAnswer("07-stopwatch", "no wait", "", "not ready"),
    ShownAnswer("07-stopwatch", "does not divide by n", "", "divide by n"),
    ShownAnswer("07-stopwatch", "in seconds", "", "milliseconds already"),
    ShownAnswer("07-stopwatch", "returns a string", "", "Return a number"),
    ShownAnswer("07-race", "the given program, unchanged", "hazards", "wait"),
    ShownAnswer("07-race", "a single stream", "counts", "Keep the two streams"),
    ShownAnswer("07-race", "on the host", "results", "stay on the device"),
    ShownAnswer("07-race", "the host polls the event", "counts", "leaves the host free"),
    ShownAnswer("07-race", "halves x itself", "hazards", "belongs to its caller"),
    ShownAnswer("07-conveyor", "waits for the whole device", "counts", "your own streams"),
    ShownAnswer("07-conveyor", "one stream", "counts", "several non-blocking streams"),
    ShownAnswer("07-conveyor", "pageable copies", "counts", "x and y are pinned"),
    ShownAnswer("07-conveyor", "one piece", "counts", "Cut x into pieces"),
    ShownAnswer("07-conveyor", "fails for an empty array", "results", "with 0 elements"),
    ShownAnswer("07-rollout", "waits for the whole device", "counts", "not for both"),
    ShownAnswer("07-rollout", "waits for both streams", "counts", "request the next decision"),
    ShownAnswer("07-rollout", "both environments in lockstep", "counts", "While the host steps one"),
    ShownAnswer("07-rollout", "calls the policy twice per step", "counts", "Call `policy` exactly once"),
    ShownAnswer("07-rollout", "the host decides", "counts", "on the device"),
)
