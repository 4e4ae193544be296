"""Questions of notebooks 13a and 13b."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "Libraries and precision"

QUESTIONS = (
    Question(
        "Why does a counter in FP16 stop at 2,048?",
        (
            Choice("2,048 is the largest FP16 number", "The largest is 65,504."),
            Choice(
                "beyond it, neighbours are 2 apart, and ties go to even",
                "2,049 is in the middle of two.",
                right=True,
            ),
            Choice(
                "rounding errors of all additions before it have added up to 1", "Up to there, all are exact."
            ),
        ),
    ),
    Question(
        "A sum of a million FP16 numbers is infinite, although their mean is about 1. How can it be fixed?",
        (
            Choice(
                "a wider accumulator, converted once at the end",
                "The numbers can stay in FP16, but their sum cannot.",
                right=True,
            ),
            Choice("adding the smallest ones first", "The sum itself is too large for FP16."),
            Choice("clamping each partial sum at 65,504", "A clamped sum is a wrong number instead of ∞."),
        ),
    ),
    Question(
        "What does TF32 change about a matrix in memory?",
        (
            Choice("it takes 19 bits of memory per element instead of 32", "Elements stay 32 bits wide."),
            Choice(
                "nothing: tensor cores use fewer of its bits",
                "cuBLAS rounds the inputs while it loads them.",
                right=True,
            ),
            Choice("it is converted once, and kept", "No array is stored in TF32."),
        ),
    ),
    Question(
        "BF16 or FP16 for gradients without a loss scale?",
        (
            Choice(
                "BF16: its exponent reaches as far as FP32's", "Tiny gradients do not become 0.", right=True
            ),
            Choice(
                "FP16: it has more bits of fraction",
                "FP16 has too few bits of exponent, so tiny gradients are lost.",
            ),
            Choice("either: both are 16 bits, and both need a scale", "BF16 rarely needs one."),
        ),
    ),
    Question(
        "One of the scaled gradients is infinite. What does a step with loss scaling do?",
        (
            Choice(
                "it clips the gradients to the largest FP16 number",
                "The true values of such gradients are lost.",
            ),
            Choice(
                "it sets that one gradient to 0 and goes on",
                "The step would have another direction than the gradient.",
            ),
            Choice("it leaves weights alone, and halves the scale", "The next step tries again.", right=True),
        ),
    ),
    Question(
        "Tensor cores of an H200 multiply two FP16 matrices, and add in FP32. Where is precision lost?",
        (
            Choice("in each product of two elements", "11 bits times 11 bits fit into FP32's 24."),
            Choice(
                "where inputs became FP16, and a little where sums are cut",
                "The products themselves are exact.",
                right=True,
            ),
            Choice("nowhere: an FP32 accumulator makes the result FP32's", "The inputs had been rounded."),
        ),
    ),
    Question(
        "Under autocast, which of these runs in half precision?",
        (
            Choice("softmax", "Softmax uses exponentials and sums, so autocast runs it in FP32."),
            Choice(
                "a linear layer",
                "Multiplications gain most, and tensor cores add in FP32 or nearly so.",
                right=True,
            ),
            Choice("a loss such as mse_loss", "A loss sums over all elements, so autocast runs it in FP32."),
        ),
    ),
    Question(
        "CuPy's matrices are row-major, and cuBLAS is column-major. How does CuPy call cuBLAS for a @ b?",
        (
            Choice(
                "it copies both matrices into column-major order", "A copy is needed only for some slices."
            ),
            Choice(
                "it exchanges the factors and copies nothing",
                "The memory of each matrix is its transpose, and (a @ b)ᵀ = bᵀ @ aᵀ.",
                right=True,
            ),
            Choice("it switches cuBLAS to row-major storage", "cuBLAS has no such switch for this call."),
        ),
    ),
    Question(
        "A matrix multiplication has a result of 64 × 64 and sums of 65,536 terms. Why is it slow without a "
        "workspace?",
        (
            Choice(
                "few thread blocks work, each on long sums", "A workspace lets more blocks help.", right=True
            ),
            Choice(
                "the two matrices do not fit into the L2 cache", "A workspace would not make them smaller."
            ),
            Choice("the result has to be copied to the host", "The result stays on the device."),
        ),
    ),
    Question(
        "A tuner has chosen a candidate for a float32 array. What does it do for a float16 array of the same "
        "shape?",
        (
            Choice(
                "it uses the same candidate",
                "Another candidate can be the fastest for this dtype, or the "
                "result of this one can be wrong.",
            ),
            Choice(
                "it times all candidates again, with arrays of this dtype, and takes the fastest",
                "Wrong results must be found before the timing.",
            ),
            Choice(
                "it checks the results of all candidates, and times those that are right",
                "The dtype is a part of the key.",
                right=True,
            ),
        ),
    ),
    WhyQuestion(
        "Why does mixed precision keep a second copy of the weights, in FP32?",
        (
            "An update is often too small to move a 16-bit weight to its neighbour, so it is lost.",
            "In FP32 many small updates add up until a 16-bit copy changes.",
            "It costs memory; activations and gradients in 16 bits save more.",
        ),
    ),
)
