"""Wrong answers that are common in notebook 07, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("07-stopwatch", "no warm-up", "", "first, cold call"),
    ShownAnswer("07-stopwatch", "no wait", "", "not ready"),
    ShownAnswer("07-stopwatch", "not divided", "", "divide by n"),
    ShownAnswer("07-stopwatch", "seconds", "", "milliseconds already"),
    ShownAnswer("07-stopwatch", "a text", "", "return a number"),
    ShownAnswer("07-race", "as published", "hazards", "wait"),
    ShownAnswer("07-race", "a single stream", "counts", "Keep the two streams"),
    ShownAnswer("07-race", "on the host", "results", "stay on the device"),
    ShownAnswer("07-race", "polling", "counts", "leaves the host free"),
    ShownAnswer("07-race", "halves x itself", "hazards", "belongs to its caller"),
    ShownAnswer("07-conveyor", "the whole device", "counts", "your own streams"),
    ShownAnswer("07-conveyor", "one stream", "counts", "several non-blocking streams"),
    ShownAnswer("07-conveyor", "pageable copies", "counts", "x and y are pinned"),
    ShownAnswer("07-conveyor", "one piece", "counts", "Cut x into pieces"),
    ShownAnswer("07-conveyor", "nothing to cut", "results", "with 0 elements"),
    ShownAnswer("07-rollout", "the whole device", "counts", "not for both"),
    ShownAnswer("07-rollout", "both streams", "counts", "request the next decision"),
    ShownAnswer("07-rollout", "lockstep", "counts", "While the host steps one"),
    ShownAnswer("07-rollout", "decides twice", "counts", "Call `policy` exactly once"),
    ShownAnswer("07-rollout", "the host decides", "counts", "on the device"),
)
