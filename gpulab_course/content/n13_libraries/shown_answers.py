"""Wrong answers that are common in notebook 13, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("13-round", "cuts off the lower bits", "results", "rounding towards 0"),
    ShownAnswer("13-round", "rounds ties up", "results", "ties always go up"),
    ShownAnswer("13-round", "rounds ties down", "results", "ties always go down"),
    ShownAnswer("13-round", "a carry changes NaN", "results", "NaN has to stay"),
    ShownAnswer("13-round", "no guard", "results", "Guard the end"),
    ShownAnswer("13-halfsum", "sums in float64", "", "forgets a small number"),
    ShownAnswer("13-halfsum", "math.fsum", "", "rounded to FP64 first"),
    ShownAnswer("13-halfsum", "clamps the sum", "", "do not clamp"),
    ShownAnswer("13-halfsum", "does not round the sum to FP32", "", "is not an FP32 number"),
    ShownAnswer("13-halfsum", "returns nothing", "", "returns nothing"),
    ShownAnswer("13-tf32x3", "only one product", "", "error of a single product"),
    ShownAnswer("13-tf32x3", "cuts a instead of rounding it", "", "do not cut"),
    ShownAnswer("13-tf32x3", "four products", "", "3 calls are enough"),
    ShownAnswer("13-tf32x3", "NumPy's matrix multiplication", "", "never calls product"),
    ShownAnswer("13-tf32x3", "returns the transpose", "", "Return the product"),
    ShownAnswer("13-lossscale", "does not divide by the scale", "", "still scaled"),
    ShownAnswer("13-lossscale", "calls backward twice", "", "backward only once"),
    ShownAnswer("13-lossscale", "no loss scale", "", "the loss is multiplied"),
    ShownAnswer("13-lossscale", "changes weights", "", "belongs to its caller"),
    ShownAnswer("13-lossscale", "returns nothing", "", "returns nothing"),
    ShownAnswer("13-blocks", "one scale for all", "", "its own"),
    ShownAnswer(
        "13-blocks", "the largest value instead of the largest absolute value", "", "largest absolute"
    ),
    ShownAnswer("13-blocks", "does not subtract 2 from the exponent", "", "Subtract 2"),
    ShownAnswer("13-blocks", "log2 in float32", "", "np.frexp"),
    ShownAnswer("13-blocks", "frexp's exponent for a block of zeros", "", "zeros"),
    ShownAnswer("13-blocks", "multiplies the elements by the scale", "", "without the scale"),
    ShownAnswer("13-columns", "both matrices passed as transposes", "", "the transpose of a @ b"),
    ShownAnswer("13-columns", "transposes the matrices first", "", "neither a nor b nor c"),
    ShownAnswer("13-columns", "calls gemm, but does not use its result", "", "did not compute"),
    ShownAnswer("13-columns", "one call per row", "", "one call computes"),
    ShownAnswer("13-columns", "changes a", "", "only read"),
    ShownAnswer("13-tuner", "no warm-up", "", "call once before"),
    ShownAnswer("13-tuner", "only one timed call", "", "median of several"),
    ShownAnswer("13-tuner", "the longest time", "", "then take the median"),
    ShownAnswer("13-tuner", "the mean of the times", "", "spoils a mean"),
    ShownAnswer("13-tuner", "does not keep its choices", "", "Keep this choice"),
)
