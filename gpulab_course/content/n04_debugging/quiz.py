"""Questions of notebook 04."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "Errors and debugging"

QUESTIONS = (
    Question(
        "cp.asnumpy(y) raises cudaErrorIllegalAddress. Which kernel failed?",
        (
            Choice(
                "the last one that wrote y, whatever was launched since",
                "Another kernel that was launched before can be the one that failed.",
            ),
            Choice("the last one launched", "The error was only reported at that time."),
            Choice(
                "one of those launched since the host last waited",
                "Wait after each launch. The launch after which the wait raises the error is the one that "
                "failed.",
                right=True,
            ),
        ),
    ),
    Question(
        "Setting os.environ['CUDA_LAUNCH_BLOCKING'] = '1' in the middle of a notebook has no effect. Why?",
        (
            Choice("the value must be a number and not a string", "Environment variables are strings."),
            Choice(
                "it is read when the context is created",
                "Set it before the first use of the GPU, or in a new process.",
                right=True,
            ),
            Choice("CuPy ignores it", "The driver reads it, for all libraries."),
        ),
    ),
    Question(
        "After which of these errors can the same process continue?",
        (
            Choice("a device assert", "A device assert makes the context unusable."),
            Choice("a misaligned access", "A misaligned access makes the context unusable."),
            Choice("an allocation that is too large", "Nothing has run, and nothing is lost.", right=True),
            Choice("an illegal address", "An illegal address makes the context unusable."),
        ),
    ),
    Question(
        "A kernel writes one element after the end of its array, and no error is raised. What is the most "
        "likely reason?",
        (
            Choice(
                "the GPU clips addresses to the end of the array",
                "The GPU has no information about the arrays.",
            ),
            Choice(
                "the address is in other mapped memory",
                "Memory is protected in pages, and the pool puts many arrays in one page.",
                right=True,
            ),
            Choice(
                "errors of writes are never reported", "A write to an address that is not mapped is reported."
            ),
        ),
    ),
    Question(
        "`if (t < half) { part[t] += part[t + half]; __syncthreads(); }`: what is wrong?",
        (
            Choice(
                "the barrier takes far too long inside a branch",
                "The cost of the barrier does not matter here.",
            ),
            Choice(
                "some threads of the block never reach it",
                "Put it after the if, where all threads reach it.",
                right=True,
            ),
            Choice(
                "it should be __syncwarp()", "With __syncwarp(), the warps would not wait for each other."
            ),
        ),
    ),
    Question(
        "A loss is NaN because of an overflow in a softmax. Which change fixes the cause?",
        (
            Choice("nan_to_num on the loss", "nan_to_num hides the NaN and leaves its cause."),
            Choice("clamp all activations", "Clamping hides the NaN as well, and it changes the model."),
            Choice(
                "compute everything, gradients as well, in float64",
                "float64 overflows as well, only for larger scores, and it is much slower.",
            ),
            Choice(
                "subtract the row's maximum before exp",
                "After the subtraction, no term is greater than 1.",
                right=True,
            ),
        ),
    ),
    WhyQuestion(
        "Why is the launch that fails not always the one with the mistake?",
        (
            "An earlier kernel may have written the index or pointer that this one uses.",
            "An out-of-bounds write into another array raises no error itself.",
            "So trace the wrong number back to the write that produced it first.",
        ),
    ),
)
