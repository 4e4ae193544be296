"""Predictions of notebook 13 about libraries."""

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "13-sorts",
        "CuPy sorts a million floats on an H200. Whose kernels run?",
        "CuPy copies the array and calls Thrust. Thrust sorts numbers with CUB's radix sort: first "
        "histograms, then one pass for each group of bits.",
        choices=("CuPy's own", "cuBLAS's", "CUB's"),
        comparison="CuPy's own",
        misconception="An array library has kernels of its own for everything.",
    ),
    PredictionQuestion(
        "13-epilogue",
        "In PyTorch, gelu(x @ w + b) in half precision by `_addmm_activation`, on an H200. How many kernels?",
        "cuBLASLt has products with an epilogue: bias and GELU are computed while a tile of the result is "
        "still in registers. In FP32 the same call needs a second kernel.",
        choices=("1", "2", "3"),
        comparison="3",
        misconception="A product, an addition and an activation are three kernels.",
    ),
    PredictionQuestion(
        "13-workspace",
        "64 × 65,536 times 65,536 × 64 in FP32, on an H200. Without memory for cuBLAS's own use, how many "
        "times as long does it take?",
        "A result with few elements keeps few SMs busy. With a workspace, cuBLAS cuts the long sums into "
        "pieces (split k), stores the sums of the pieces there, and adds them afterwards.",
        unit="×",
        comparison=1,
        misconception="The workspace is a detail that changes some per cent.",
    ),
    PredictionQuestion(
        "13-tunable",
        "PyTorch's TunableOp searches for the fastest kernel of a product. How many candidates does it have "
        "on an H200 with CUDA?",
        "Its candidates come from rocBLAS and hipBLASLt, for AMD's GPUs. With CUDA, it has only the call "
        "that PyTorch makes anyway, under one name.",
        choices=("2, of one name", "some ten", "hundreds"),
        comparison="hundreds",
        misconception="TunableOp tries all kernels of cuBLAS.",
    ),
)
