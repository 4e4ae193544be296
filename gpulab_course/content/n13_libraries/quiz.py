"""Questions of notebook 13."""

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
            Choice("clamping each partial sum at 65,504", "That is a wrong number instead of ∞."),
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
            Choice("it is converted once, and kept", "There is no array of TF32."),
        ),
    ),
    Question(
        "BF16 or FP16 for gradients without a loss scale?",
        (
            Choice(
                "BF16: its exponent reaches as far as FP32's", "Tiny gradients do not become 0.", right=True
            ),
            Choice(
                "FP16: it has more bits of fraction", "And too few of the exponent: tiny gradients are lost."
            ),
            Choice("either: both are 16 bits, and both need a scale", "BF16 rarely does."),
        ),
    ),
    Question(
        "One of the scaled gradients is infinite. What does a step with loss scaling do?",
        (
            Choice("it clips the gradients to the largest FP16 number", "Their values are lost."),
            Choice("it sets that one gradient to 0 and goes on", "The others come from the same overflow."),
            Choice("it leaves weights alone, and halves the scale", "The next step tries again.", right=True),
        ),
    ),
    Question(
        "Tensor cores of an H200 multiply two FP16 matrices, and add in FP32. Where is precision lost?",
        (
            Choice("in each product of two elements", "11 bits times 11 bits fit into FP32's 24."),
            Choice("where inputs became FP16, and a little where sums are cut", "That is all.", right=True),
            Choice("nowhere: an FP32 accumulator makes the result FP32's", "The inputs had been rounded."),
        ),
    ),
    Question(
        "Under autocast, which of these runs in half precision?",
        (
            Choice("softmax", "It exponentiates and sums: autocast runs it in FP32."),
            Choice("a linear layer", "Products gain most, and sum in FP32 inside.", right=True),
            Choice("a loss such as mse_loss", "It sums over everything: FP32."),
        ),
    ),
    WhyQuestion(
        "Why does mixed precision keep a second copy of the weights, in FP32?",
        (
            "An update is often too small to move a 16-bit weight to its neighbour: it is lost.",
            "In FP32 many small updates add up until a 16-bit copy changes.",
            "It costs memory; activations and gradients in 16 bits save more.",
        ),
    ),
)
