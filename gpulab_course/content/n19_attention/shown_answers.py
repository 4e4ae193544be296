"""Wrong answers that are common in notebook 19, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("19-attention", "does not rescale the result", "results", "an older largest score"),
    ShownAnswer(
        "19-attention", "does not subtract the largest score", "results", "subtract the largest score"
    ),
    ShownAnswer("19-attention", "missing keys count as 0", "results", "existing keys only"),
    ShownAnswer("19-attention", "reads whole tiles at the end", "results", "the last tile fewer keys"),
    ShownAnswer("19-attention", "every thread loads all keys", "budget", "load each row of k and v once"),
    ShownAnswer("19-mask", "loads all tiles", "budget", "begin and end the loop over tiles there"),
    ShownAnswer("19-mask", "masked scores are minus infinity", "results", "−∞ − (−∞)"),
    ShownAnswer("19-mask", "no window", "results", "before the window count as well"),
    ShownAnswer("19-mask", "a window with one key more", "results", "here it sees one key more"),
    ShownAnswer("19-mask", "begins before key 0", "results", "must not begin before key 0"),
    ShownAnswer("19-split", "does not rescale the parts", "results", "its own largest score"),
    ShownAnswer("19-split", "averages the parts", "results", "its own largest score"),
    ShownAnswer("19-split", "no limit for the last part", "results", "limit their end"),
    ShownAnswer("19-split", "an empty part becomes NaN", "results", "must be 0, not NaN"),
    ShownAnswer("19-split", "one warp does all of the work", "parallelism", "few threads do the work"),
    ShownAnswer("19-paged", "ignores the page table", "results", ""),
    ShownAnswer("19-paged", "reads whole pages", "results", "partly used"),
    ShownAnswer("19-paged", "reads all entries of the table", "results", ""),
    ShownAnswer("19-paged", "0 / 0 without tokens", "results", "its result must be 0"),
    ShownAnswer("19-paged", "every lane computes all scores", "parallelism", "repeat each other's work"),
    ShownAnswer("19-rotary", "does not rotate the keys", "results", "not rotated"),
    ShownAnswer("19-rotary", "rotates backwards", "results", "rotated backwards"),
    ShownAnswer("19-rotary", "rotates neighbouring numbers", "results", "number i with number i + 32"),
    ShownAnswer("19-rotary", "the index instead of the position", "results", "need not be j"),
    ShownAnswer("19-rotary", "one thread for each key", "parallelism", "few threads do the work"),
)
