"""Questions of notebook 11."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "CUDA Graphs"

QUESTIONS = (
    Question(
        "What does a kernel node of a graph remember of the array that it reads?",
        (
            Choice("its name in the program", "Names belong to Python; the GPU has never seen one."),
            Choice(
                "a copy of what it held", "Nothing is copied: the node reads what is there at the launch."
            ),
            Choice("its address", "Hence x[...] = new works, and x = new does not.", right=True),
        ),
    ),
    Question(
        "Which kernels gain most from being launched as a graph?",
        (
            Choice("many short ones in a row", "Their launches take longer than they do.", right=True),
            Choice("a few long ones that use all SMs", "The next launch is done before they end."),
            Choice("those with much divergence", "What happens within a kernel stays as it is."),
        ),
    ),
    Question(
        "A framework warms a model up before it captures it. What for?",
        (
            Choice(
                "so that compiling, tuning and first allocations are over",
                "They would wait, allocate or choose anew while the stream captures.",
                right=True,
            ),
            Choice(
                "so that the GPU's clock has reached its boost by then",
                "A capture runs nothing, so no clock matters.",
            ),
            Choice("so that the caches hold the weights", "They hold something else by the first replay."),
        ),
    ),
    Question(
        "end_capture() raises “unjoined work”. What is missing?",
        (
            Choice("a synchronize() of the device before it", "That would spoil the capture as well."),
            Choice(
                "a wait for an event of the stream that was forked off",
                "Each stream that joins the capture has to flow back into the first one.",
                right=True,
            ),
            Choice(
                "a launch of the graph on the stream that was forked off",
                "A graph exists only after the capture.",
            ),
        ),
    ),
    Question(
        "A captured kernel was given the learning rate as a float. How do you halve it?",
        (
            Choice("assign the variable before the next launch", "The node has a copy of the old number."),
            Choice(
                "let it read the rate from device memory, and write there",
                "Or update the node's parameters in the instantiated graph.",
                right=True,
            ),
            Choice("launch the graph twice as often with half of the data", "That is another computation."),
        ),
    ),
    Question(
        "“CUDA Graphs remove Python's overhead.” What is true of it?",
        (
            Choice(
                "of what was captured; what runs between the launches stays",
                "Python still copies inputs, decides and launches, once for each replay.",
                right=True,
            ),
            Choice(
                "nothing, because launches are made by the driver", "The calls to it are what Python spends."
            ),
            Choice(
                "all of it, since Python is compiled into the graph with the kernels",
                "Nothing of Python is in the graph.",
            ),
        ),
    ),
    Question(
        "Two graphs share one memory pool. When is that safe?",
        (
            Choice("always: a pool never gives out a block twice", "It does, once the block was freed."),
            Choice(
                "if they never run at the same time, in an order that is kept",
                "Then one may overwrite what the other no longer needs.",
                right=True,
            ),
            Choice(
                "never: by CUDA's rules each graph has to have a pool of its own", "CUDA has no such rule."
            ),
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
            "The GPU fetches the next node by itself and does not wait for the host.",
            "What remains is what each kernel needs to begin and to end: very short ones are better fused.",
        ),
    ),
)
