"""Predictions of notebook 04."""

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "04-raised",
        "Launch 2 reads from an address that belongs to no array. Which line of `program` raises the error?",
        "A launch only puts the kernel into a queue. The kernel fails later, on the GPU, and the next call "
        "that waits for the GPU or checks its state raises the error.",
        choices=("the line of launch 2", "a later line", "no line: Python goes on to the end"),
        comparison="the line of launch 2",
        misconception="The line that raises is the line that is wrong.",
    ),
    PredictionQuestion(
        "04-blocking",
        "With launch blocking, the host waits after each launch. Which line raises the error now?",
        "The host notices the error when it waits, and now it waits after the launch whose kernel failed. "
        "This kernel failed, but it need not contain the mistake.",
        choices=("the line of launch 1", "the line of launch 2", "a later line"),
        comparison="the line of launch 1",
        misconception="Launch blocking shows the line with the mistake.",
    ),
    PredictionQuestion(
        "04-neighbour",
        "`number_rows` writes one element too many. What happens?",
        "CUDA protects pages of memory, not arrays. The address after the last element belongs to another "
        "array, and the kernel can write there.",
        choices=(
            "an illegal address",
            "the write is dropped",
            "another array changes, and no error is raised",
        ),
        comparison="an illegal address",
        misconception="An access out of bounds always ends the program.",
    ),
    PredictionQuestion(
        "04-sticky",
        "After which of the errors in the rows above does the context stop working for all later calls?",
        "If a kernel runs and fails, the context is lost. If CUDA refuses a request before anything runs "
        "(too many threads, too much memory), nothing is lost.",
        choices=("none", "those of kernels that ran and failed", "all"),
        comparison="all",
        misconception="After any error the process must be restarted.",
    ),
    PredictionQuestion(
        "04-lucky",
        "A kernel has a race, and its sum is right. What does this show?",
        "It shows only that nothing went wrong this time, with this order of warps. A checker tests "
        "whether the accesses are ordered, not whether the result is right.",
        choices=("that the kernel is right", "nothing"),
        comparison="that the kernel is right",
        misconception="A test that passes shows that there is no race.",
    ),
    PredictionQuestion(
        "04-nan",
        "One score of a row is 200, and exp(200) is infinite in float. The softmax does not subtract the "
        "largest score. What is in this row of the softmax?",
        "The largest term is infinity divided by infinity, which is NaN. The others are finite numbers "
        "divided by infinity, which is 0.",
        choices=("one NaN, and zeros", "all NaN", "a row that sums to 1"),
        comparison="all NaN",
        misconception="One NaN makes the whole row NaN.",
    ),
)
