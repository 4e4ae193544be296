"""Wrong answers that are common in notebook 12, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("12-elementwise", "nine passes", "counts", "One kernel"),
    ShownAnswer("12-elementwise", "copies an array first", "counts", "copied"),
    ShownAnswer("12-elementwise", "a float64 result", "results", "should be float32"),
    ShownAnswer("12-elementwise", "does not add b", "results", ""),
    ShownAnswer("12-elementwise", "computes in double precision", "counts", "is a double"),
    ShownAnswer("12-maxabs", "absolute values in memory", "counts", "Map and reduce"),
    ShownAnswer("12-maxabs", "max() loses NaN", "results", "NaN"),
    ShownAnswer("12-maxabs", "the identity is −∞", "results", "begin there"),
    ShownAnswer("12-maxabs", "no identity", "results", "identity"),
    ShownAnswer("12-maxabs", "adds instead of taking the maximum", "results", ""),
    ShownAnswer("12-softmax", "three reads", "budget", "Read each score once"),
    ShownAnswer("12-softmax", "does not subtract the largest score", "results", ""),
    ShownAnswer("12-softmax", "uses only the first warp's sum", "results", "add up to 1"),
    ShownAnswer("12-softmax", "takes the absolute value of scale", "results", "but with other weights"),
    ShownAnswer("12-softmax", "shared memory for 8,192 columns only", "results", "array in shared memory"),
    ShownAnswer("12-guards", "a key without the dtype", "", "dtype belongs"),
    ShownAnswer("12-guards", "a key without the shape", "", "contains the whole shape"),
    ShownAnswer("12-guards", "a key without the layout", "", "c_contiguous"),
    ShownAnswer("12-guards", "a key without the device", "", "one device"),
    ShownAnswer("12-guards", "returns nothing", "", "should return a function"),
    ShownAnswer("12-fuses", "fuses a product with other steps", "", "a product must be alone"),
    ShownAnswer("12-fuses", "forgets a value that is needed later", "", "needed later"),
    ShownAnswer("12-fuses", "one kernel for each step", "", "more steps fit"),
    ShownAnswer("12-fuses", "treats a shift as a map", "", "other elements"),
    ShownAnswer("12-fuses", "returns the number of steps", "", "a list of the names of its steps"),
)
