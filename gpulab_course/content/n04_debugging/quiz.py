"""Questions of notebook 04."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "Errors and debugging"

QUESTIONS = (
    Question(
        "cp.asnumpy(y) raises cudaErrorIllegalAddress. Which kernel is it?",
        (
            Choice(
                "the last one that wrote y, whatever was launched since",
                "It may be any that was launched before.",
            ),
            Choice("the last one launched", "The error was only told then."),
            Choice(
                "one of those launched since the host last waited",
                "Wait behind each, and the first that raises is it.",
                right=True,
            ),
        ),
    ),
    Question(
        "os.environ['CUDA_LAUNCH_BLOCKING'] = '1' in the middle of a notebook does nothing. Why?",
        (
            Choice("it has to be a number and not a text", "Variables of the environment are texts."),
            Choice("it is read when the context is made", "Set it before, or in a new process.", right=True),
            Choice("CuPy ignores it", "The driver reads it, whoever calls."),
        ),
    ),
    Question(
        "After which of these does the same process go on?",
        (
            Choice("a device assert", "It loses the context."),
            Choice("a misaligned access", "It loses the context."),
            Choice("an allocation that is too large", "Nothing ran, and nothing is lost.", right=True),
            Choice("an illegal address", "It loses the context."),
        ),
    ),
    Question(
        "A kernel writes one element behind its array, and no error comes. Why?",
        (
            Choice("the GPU clips addresses to the array", "It knows of no arrays."),
            Choice(
                "the address belongs to somebody: a pool's block lies beside it",
                "Memory is protected in pages, which many arrays share.",
                right=True,
            ),
            Choice("errors of writes are never told", "They are, where nothing is mapped."),
        ),
    ),
    Question(
        "`if (t < half) { part[t] += part[t + half]; __syncthreads(); }`: what is wrong?",
        (
            Choice("the barrier takes far too long inside a branch", "Its cost is not what matters."),
            Choice(
                "some threads of the block never come to it", "Behind the if, all of them do.", right=True
            ),
            Choice("it should be __syncwarp()", "Then warps do not wait for each other."),
        ),
    ),
    Question(
        "A loss is NaN. Which of these is a mend?",
        (
            Choice("nan_to_num on the loss", "It hides the number, not its cause."),
            Choice("clamp all activations", "So does that, and it changes the model."),
            Choice(
                "compute everything, gradients as well, in float64",
                "It overflows later, and costs much more.",
            ),
            Choice("subtract the row's maximum before exp", "No term exceeds 1 then.", right=True),
        ),
    ),
    WhyQuestion(
        "Why is the launch that fails not always the one to blame?",
        (
            "An earlier kernel may have written the index or pointer that this one follows.",
            "A stray write into somebody's array raises nothing itself.",
            "So one asks who wrote the number that is wrong, back to the first.",
        ),
    ),
)
