"""Predictions of notebook 04."""

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "04-raised",
        "Launch 2 reads where nothing lies. Which line of `program` raises?",
        "A launch hands over and returns. The fault happens later, on the GPU, and the next call that waits "
        "or looks is told of it.",
        choices=("the line of launch 2", "a later line", "no line: Python goes on to the end"),
        comparison="the line of launch 2",
        misconception="The line that raises is the line that is wrong.",
    ),
    PredictionQuestion(
        "04-blocking",
        "With launch blocking the host waits behind each launch. Which line raises now?",
        "The host finds out where it waits, and now that is behind the launch whose kernel failed. Whether "
        "that kernel is to blame is another question.",
        choices=("the line of launch 1", "the line of launch 2", "a later line"),
        comparison="the line of launch 1",
        misconception="Launch blocking names the line with the mistake.",
    ),
    PredictionQuestion(
        "04-neighbour",
        "`number_rows` writes one element too many. What becomes of it?",
        "CUDA protects pages, not arrays: the element behind the last is somebody else's, and writable.",
        choices=("an illegal address", "the write is dropped", "another array changes, and nobody is told"),
        comparison="an illegal address",
        misconception="Out of bounds crashes.",
    ),
    PredictionQuestion(
        "04-sticky",
        "How many of the rows above leave a context in which nothing works any more?",
        "What a kernel does wrong while it runs costs the context. What is refused before anything runs "
        "(too many threads, too much memory) costs nothing.",
        choices=("none", "those of kernels that ran and failed", "all"),
        comparison="all",
        misconception="After an error one has to restart.",
    ),
    PredictionQuestion(
        "04-lucky",
        "The sum of a racing kernel came out right. What does that show?",
        "That nothing went wrong this time, in this order of warps. A checker looks at what is ordered, not "
        "at what came out.",
        choices=("that it is right", "nothing"),
        comparison="that it is right",
        misconception="A test that passes shows that there is no race.",
    ),
    PredictionQuestion(
        "04-nan",
        "One score of a row is 200. exp(200) is infinite in float. What becomes of that row of the softmax?",
        "The largest term is infinity over infinity, which is NaN; the others are something over infinity, "
        "which is 0.",
        choices=("one NaN, and zeros", "all NaN", "a row that sums to 1"),
        comparison="all NaN",
        misconception="NaN comes in whole rows.",
    ),
)
