"""Predictions of notebook 11."""

from gpulab_course.content.ranges import ranges
from gpulab_course.teach.question import PredictionQuestion

IDLE = (25, 50, 75)

PREDICTIONS = (
    PredictionQuestion(
        "11-idle",
        "Forty tiny kernels, one after the other. For what share of the time is the GPU computing?",
        "Each launch keeps the host busy for microseconds, and each kernel the GPU for less: it waits "
        "for the next one most of the time. Here it computes for {busy} % of it.",
        choices=ranges(*IDLE, unit="%"),
        comparison=ranges(*IDLE, unit="%")[3],
        misconception="A GPU that is given work without a pause is busy.",
    ),
    PredictionQuestion(
        "11-stale",
        "The graph was captured for batch 0, whose sum is {first}. Then `batch` names batch 1, and the "
        "graph is launched. What is the sum of `y`?",
        "The graph holds the address of the array that `batch` named at the capture. That the name now "
        "belongs to another array, it cannot know.",
        choices=("that of batch 0", "that of batch 1", "an error"),
        comparison="that of batch 1",
        misconception="A graph reads variables when it is launched.",
    ),
    PredictionQuestion(
        "11-times",
        "The same forty kernels as one graph. How many times shorter is the replay, from the first "
        "kernel's start to the last one's end?",
        "The host gives out one launch instead of forty. What remains is the nodes themselves, {node} µs "
        "from one to the next here: no kernel is so small that it takes no time to begin and to end.",
        unit="times",
        comparison=40.0,
        tolerance=0.25,
        misconception="A graph of n kernels is n times as fast, because it is one launch.",
    ),
    PredictionQuestion(
        "11-pays",
        "The kernels grow from {small} to {large} elements. What is left of the graph's advantage?",
        "A kernel that runs longer than its launch takes hides the next launch by itself: the stream "
        "never runs dry, and there is nothing left to save.",
        choices=("about the same factor", "half of it", "almost nothing"),
        comparison="about the same factor",
        misconception="A graph makes every program faster.",
    ),
    PredictionQuestion(
        "11-forbidden",
        "Which of these may stand between begin_capture() and end_capture()?",
        "Whatever would make the host wait for a result has none to wait for, since nothing runs during "
        "a capture. A new array is only an address from the pool, and CuPy captures in a mode that lets the "
        "pool grow.",
        choices=("a sum as a number", "a wait for the stream", "a new array", "a copy to the host"),
        comparison="a sum as a number",
        misconception="A capture records Python, so anything may be captured.",
    ),
    PredictionQuestion(
        "11-depth",
        "Two branches of four kernels each, then one that joins them: nine nodes. After how many nodes "
        "is the graph done, if the branches run side by side?",
        "The longest chain decides: four nodes of a branch, and the join.",
        unit="nodes",
        comparison=9,
        misconception="Kernels of a graph run one after the other, as they did in the stream.",
    ),
    PredictionQuestion(
        "11-random",
        "A captured draw of random numbers is launched three times. How many different draws come out, "
        "if the seed and the round were passed as numbers?",
        "Numbers are copied into the node when it is captured. What is to change has to lie in device "
        "memory.",
        unit="draws",
        comparison=3,
        misconception="A random generator gives new numbers whenever its kernel runs.",
    ),
    PredictionQuestion(
        "11-block",
        "{sequences} sequences go through the attention block in {sequences} streams, {kernels} kernels in "
        "all. How many launches does the host make for {replays} replays of their graph?",
        "One for each replay, whatever the graph holds; piece by piece it would be {eager}.",
        unit="launches",
        comparison=32,
        misconception="Each stream needs a launch of its own.",
    ),
)
