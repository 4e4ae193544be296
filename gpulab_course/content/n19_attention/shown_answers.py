"""Wrong answers that are common in notebook 19, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("19-attention", "result not rescaled", "results", "an older largest score"),
    ShownAnswer("19-attention", "no largest score", "results", "subtract the largest score"),
    ShownAnswer("19-attention", "missing keys count as 0", "results", "existing keys only"),
    ShownAnswer("19-attention", "whole tiles read", "results", "the last tile fewer keys"),
    ShownAnswer("19-attention", "every thread loads all", "budget", "load each row of k and v once"),
    ShownAnswer("19-mask", "loads all tiles", "budget", "begin and end the loop over tiles there"),
    ShownAnswer("19-mask", "masked scores are minus infinity", "results", "−∞ − (−∞)"),
    ShownAnswer("19-mask", "no window", "results", "before the window count as well"),
    ShownAnswer("19-mask", "window of one more", "results", "here it sees one key more"),
    ShownAnswer("19-mask", "begins before key 0", "results", "must not begin before key 0"),
    ShownAnswer("19-split", "parts not rescaled", "results", "its own largest score"),
    ShownAnswer("19-split", "averages the parts", "results", "its own largest score"),
    ShownAnswer("19-split", "no end", "results", "limit their end"),
    ShownAnswer("19-split", "empty parts are NaN", "results", "must be 0, not NaN"),
    ShownAnswer("19-split", "one warp for all", "parallelism", "few threads do the work"),
    ShownAnswer("19-paged", "pages in order", "results", ""),
    ShownAnswer("19-paged", "whole pages", "results", "partly used"),
    ShownAnswer("19-paged", "the whole table", "results", "read neither"),
    ShownAnswer("19-paged", "0 / 0 without tokens", "results", "its result must be 0"),
    ShownAnswer("19-paged", "every lane all scores", "parallelism", "repeat each other's work"),
    ShownAnswer("19-rotary", "not rotated", "results", "not rotated"),
    ShownAnswer("19-rotary", "backwards", "results", "rotated backwards"),
    ShownAnswer("19-rotary", "neighbours", "results", "number i with number i + 32"),
    ShownAnswer("19-rotary", "position is the index", "results", "need not be j"),
    ShownAnswer("19-rotary", "one thread for each key", "parallelism", "few threads do the work"),
)
