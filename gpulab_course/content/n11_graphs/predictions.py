"""Predictions of notebook 11."""

from gpulab_course.content.ranges import list_ranges
from gpulab_course.teach.question import PredictionQuestion

IDLE = (25, 50, 75)

PREDICTIONS = (
    PredictionQuestion(
        "11-idle",
        "The host launches forty tiny kernels one after the other. For what share of the time does the GPU "
        "compute?",
        "A launch keeps the host busy for some microseconds, but a kernel keeps the GPU busy for a shorter "
        "time. So the GPU waits for the next kernel most of the time. Here it computes for {busy} % of it.",
        choices=list_ranges(*IDLE, unit="%"),
        comparison=list_ranges(*IDLE, unit="%")[3],
        misconception="A GPU to which the host launches work without a pause is busy.",
    ),
    PredictionQuestion(
        "11-stale",
        "The graph was captured for batch 0, whose sum is {first}. Then `batch` is assigned batch 1, and "
        "the graph is launched. What is the sum of `y`?",
        "The graph contains the address of the array to which `batch` referred during the capture. This "
        "address does not change when you assign another array to the name.",
        choices=("that of batch 0", "that of batch 1", "an error"),
        comparison="that of batch 1",
        misconception="A graph reads Python's variables when it is launched.",
    ),
    PredictionQuestion(
        "11-times",
        "The same forty kernels run as one graph. How many times shorter is the replay, from the start of "
        "the first kernel to the end of the last one?",
        "The host makes one launch instead of forty. But the nodes still take time, here {node} µs from one "
        "to the next, because even the smallest kernel needs time to begin and to end.",
        unit="times",
        comparison=40.0,
        tolerance=0.25,
        misconception="A graph of n kernels is n times as fast, because it needs only one launch.",
    ),
    PredictionQuestion(
        "11-pays",
        "The kernels grow from {small} to {large} elements. How much of the graph's advantage is left?",
        "If a kernel takes longer than a launch, the next launch is finished before the kernel ends. The "
        "stream always has work, so a graph saves almost nothing.",
        choices=("about the same factor", "half of it", "almost nothing"),
        comparison="about the same factor",
        misconception="A graph makes every program faster.",
    ),
    PredictionQuestion(
        "11-forbidden",
        "Which of these is allowed between begin_capture() and end_capture()?",
        "Nothing runs during a capture, so the host cannot wait for a result. A new array needs only an "
        "address from the pool, and CuPy captures in a mode in which the pool can grow.",
        choices=("a sum as a number", "a wait for the stream", "a new array", "a copy to the host"),
        comparison="a sum as a number",
        misconception="A capture records Python, so any line can be captured.",
    ),
    PredictionQuestion(
        "11-depth",
        "A graph has two branches of four kernels each, and then one kernel that joins them: nine nodes. The "
        "branches can run at the same time. How many nodes must run one after the other?",
        "The longest chain decides. It has the four nodes of a branch, and the join.",
        unit="nodes",
        comparison=9,
        misconception="Kernels of a graph run one after the other, as they did in the stream.",
    ),
    PredictionQuestion(
        "11-random",
        "A graph that draws random numbers is launched three times. The seed and the number of the round are "
        "numbers among the kernel's arguments. How many different draws do you get?",
        "A capture copies numbers into the node. A number that must change between launches has to be in "
        "device memory.",
        unit="draws",
        comparison=3,
        misconception="A random generator returns new numbers whenever its kernel runs.",
    ),
    PredictionQuestion(
        "11-block",
        "{sequences} sequences go through the attention layer in {sequences} streams, {kernels} kernels in "
        "all. How many launches does the host make for {replays} replays of their graph?",
        "The host makes one launch per replay, however many nodes the graph has. Without a graph, it would "
        "make {eager}.",
        unit="launches",
        comparison=32,
        misconception="The host needs one launch per stream.",
    ),
)
