"""Wrong answers that are common in notebook 12, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("12-elementwise", "nine passes", "counts", "One kernel"),
    ShownAnswer("12-elementwise", "a copy first", "counts", "copied"),
    ShownAnswer("12-elementwise", "a result of doubles", "results", "should be float32"),
    ShownAnswer("12-elementwise", "no b", "results", ""),
    ShownAnswer("12-elementwise", "doubles inside", "counts", "is a double"),
    ShownAnswer("12-maxabs", "absolute values in memory", "counts", "Map and reduce"),
    ShownAnswer("12-maxabs", "NaN is lost: max", "results", "NaN"),
    ShownAnswer("12-maxabs", "begins at −∞", "results", "begin there"),
    ShownAnswer("12-maxabs", "no identity", "results", "identity"),
    ShownAnswer("12-maxabs", "the sum", "results", ""),
    ShownAnswer("12-softmax", "three reads", "budget", "Read each score once"),
    ShownAnswer("12-softmax", "no largest", "results", ""),
    ShownAnswer("12-softmax", "first warp's sum", "results", "add up to 1"),
    ShownAnswer("12-softmax", "a scale above 0", "results", "but with other weights"),
    ShownAnswer("12-softmax", "room for 8,192 columns", "results", "space in shared memory"),
    ShownAnswer("12-guards", "without dtype", "", "dtype belongs"),
    ShownAnswer("12-guards", "without shape", "", "contains the whole shape"),
    ShownAnswer("12-guards", "without layout", "", "c_contiguous"),
    ShownAnswer("12-guards", "without device", "", "one device"),
    ShownAnswer("12-guards", "nothing", "", "should return a function"),
    ShownAnswer("12-fuses", "a product among maps", "", "a product must be alone"),
    ShownAnswer("12-fuses", "two consumers", "", "needed later"),
    ShownAnswer("12-fuses", "each by itself", "", "more steps fit"),
    ShownAnswer("12-fuses", "a shift is a map", "", "other elements"),
    ShownAnswer("12-fuses", "the number", "", "lists of names"),
)
