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
        misconception="An array library has its own kernel for every operation.",
    ),
    PredictionQuestion(
        "13-epilogue",
        "PyTorch computes gelu(x @ w + b) in half precision with `_addmm_activation`, on an H200. How many "
        "kernels run?",
        "cuBLASLt has matrix multiplications with an epilogue: bias and GELU are computed while a tile of "
        "the result is still in registers. In FP32 the same call needs a second kernel.",
        choices=("1", "2", "3"),
        comparison="3",
        misconception="A multiplication, an addition and an activation are three kernels.",
    ),
    PredictionQuestion(
        "13-workspace",
        "A matrix of 64 × 65,536 is multiplied by one of 65,536 × 64 in FP32, on an H200. How many times as "
        "long does it take without a workspace as with one?",
        "A result with few elements keeps few SMs busy. With a workspace, cuBLAS cuts the long sums into "
        "pieces (split k), stores the sums of the pieces there, and adds them afterwards.",
        unit="×",
        comparison=1,
        misconception="The workspace changes the time by a few per cent only.",
    ),
    PredictionQuestion(
        "13-tunable",
        "PyTorch's TunableOp searches for the fastest kernel of a matrix multiplication. How many candidates "
        "does it have on an H200 with CUDA?",
        "Its candidates come from rocBLAS and hipBLASLt, for AMD's GPUs. With CUDA, it has only the call "
        "that PyTorch makes anyway, under one name.",
        choices=("2, of one name", "some ten", "hundreds"),
        comparison="hundreds",
        misconception="TunableOp tries all kernels of cuBLAS.",
    ),
)
