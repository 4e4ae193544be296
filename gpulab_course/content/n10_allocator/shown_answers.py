"""Wrong answers that are common in notebook 10, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("10-predict", "rounds down", "", "Pool blocks are multiples of 512 bytes"),
    ShownAnswer("10-predict", "segments of 2 MiB for all sizes", "", "takes a segment of 20 MiB"),
    ShownAnswer("10-predict", "always cuts segments", "", "all of it is used"),
    ShownAnswer("10-predict", "returns nothing", "", "returns nothing"),
    ShownAnswer("10-predict", "returns strings", "", "should return four numbers"),
    ShownAnswer("10-scale", "the given program, unchanged", "counts", "in place"),
    ShownAnswer("10-scale", "changes its input", "results", "belongs to its caller"),
    ShownAnswer("10-scale", "copies numbers to the host", "counts", "Nothing here needs the"),
    ShownAnswer("10-scale", "divides so that no element is above 0", "results", "it should be"),
    ShownAnswer("10-scale", "changes x, and changes it back", "results", "belongs to"),
    ShownAnswer("10-fit", "the given program, unchanged", "results", "The rows stay in the middle"),
    ShownAnswer("10-fit", "copies numbers to the host", "counts", "Nothing here needs the host"),
    ShownAnswer("10-fit", "changes the limit of the pool", "counts", "cannot be returned to the driver"),
    ShownAnswer("10-fit", "windows one element short", "results", "it should be"),
    ShownAnswer("10-fit", "computes equal windows only once", "results", "should be ("),
    ShownAnswer("10-side", "the given program, unchanged", "hazards", "uses its memory again"),
    ShownAnswer("10-side", "the host waits", "counts", "Nothing here needs"),
    ShownAnswer("10-side", "one stream instead of two", "counts", "two streams"),
    ShownAnswer("10-side", "frees the array after a copy", "hazards", "while side may still be reading"),
    ShownAnswer("10-side", "joins the streams too early", "counts", "at the same time"),
    ShownAnswer(
        "10-pool", "calls the driver for every request", "results", "only empty_cache() returns segments"
    ),
    ShownAnswer("10-pool", "never joins free neighbours", "results", "join free neighbours"),
    ShownAnswer("10-pool", "first fit", "results", "the smallest pool block that fits"),
    ShownAnswer("10-pool", "does not round sizes", "results", "multiples of 512 bytes"),
    ShownAnswer("10-pool", "an instance instead of the class", "results", "not MyPool"),
    ShownAnswer("10-rows", "all rows at once", "counts", "some rows at a time"),
    ShownAnswer("10-rows", "a new array in each step", "counts", "in place"),
    ShownAnswer("10-rows", "row by row", "counts", "Take more rows at a time"),
    ShownAnswer("10-rows", "copies a number to the host for each block", "counts", "Nothing here needs"),
    ShownAnswer("10-rows", "keeps all scores", "counts", "some rows at a time"),
)
