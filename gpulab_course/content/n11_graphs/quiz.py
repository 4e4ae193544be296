"""Questions of notebook 11."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "CUDA Graphs"

QUESTIONS = (
    Question(
        "What does a kernel node of a graph store about the array that it reads?",
        (
            Choice("its name in the program", "Names exist only in Python, and not on the GPU."),
            Choice("a copy of its contents", "Nothing is copied: the node reads the contents at the launch."),
            Choice(
                "its address",
                "Because the node stores the address, x[...] = new works, and x = new does not.",
                right=True,
            ),
        ),
    ),
    Question(
        "Which kernels gain most from being launched as a graph?",
        (
            Choice(
                "many short ones in a row",
                "The launches of short kernels take longer than the kernels.",
                right=True,
            ),
            Choice("a few long ones that use all SMs", "The next launch is finished before they end."),
            Choice("those with much divergence", "A graph does not change what happens inside a kernel."),
        ),
    ),
    Question(
        "Why does a framework warm a model up before it captures it?",
        (
            Choice(
                "so that compiling, tuning and first allocations are over",
                "During the capture, these steps would wait or allocate, or would be captured.",
                right=True,
            ),
            Choice(
                "so that the GPU's clock has reached its boost by then",
                "A capture runs nothing, so no clock matters.",
            ),
            Choice(
                "so that the weights are in the caches", "By the first replay, other data is in the caches."
            ),
        ),
    ),
    Question(
        "end_capture() raises “unjoined work”. What is missing?",
        (
            Choice(
                "a synchronize() of the device before it",
                "A synchronize() would invalidate the capture as well.",
            ),
            Choice(
                "a wait for an event of the stream that was forked off",
                "The first stream must wait for each stream that joined the capture.",
                right=True,
            ),
            Choice(
                "a launch of the graph on the stream that was forked off",
                "A graph exists only after the capture.",
            ),
        ),
    ),
    Question(
        "The learning rate is a float among the arguments of a captured kernel. How do you halve it?",
        (
            Choice(
                "assign the variable before the next launch", "The node contains a copy of the old number."
            ),
            Choice(
                "let it read the rate from device memory, and write there",
                "You could also update the node's parameters in the instantiated graph.",
                right=True,
            ),
            Choice(
                "launch the graph twice as often with half of the data",
                "Launches with half of the data compute something else.",
            ),
        ),
    ),
    Question(
        "“CUDA Graphs remove Python's overhead.” For which work is this true?",
        (
            Choice(
                "for the captured work, but not for Python code between the launches",
                "Python still copies inputs, decides and launches, once for each replay.",
                right=True,
            ),
            Choice(
                "for no work, because the driver makes the launches",
                "Python calls the driver for each launch, and that takes time.",
            ),
            Choice(
                "for all work, since Python is compiled into the graph with the kernels",
                "The graph contains no Python.",
            ),
        ),
    ),
    Question(
        "Two graphs share one memory pool. When is that safe?",
        (
            Choice(
                "always: a pool never hands out the same memory twice",
                "A pool hands memory out again after it was freed.",
            ),
            Choice(
                "if they run one at a time, always in the same order",
                "In a fixed order, a graph overwrites only data that the other no longer needs.",
                right=True,
            ),
            Choice("never: CUDA requires a separate pool for each graph", "CUDA has no such rule."),
        ),
    ),
    WhyQuestion(
        "Why can a graph's nodes follow each other faster than launches in a stream, although the same "
        "kernels run?",
        (
            (
                "All parameters, shapes and dependencies are known when the graph is instantiated; "
                "nothing has to be checked or packed at the launch."
            ),
            "The host makes one call instead of one for each kernel.",
            "The GPU continues with the next node without the host.",
            "The time that a kernel needs to begin and to end remains: it is better to fuse short kernels.",
        ),
    ),
)
