"""Questions of notebook 07."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "Timing, streams, events"

QUESTIONS = (
    Question(
        "start = perf_counter(); kernel(…); perf_counter() - start gives 6 µs. What took 6 µs?",
        (
            Choice("the kernel, from its first block to its last", "The kernel may not even have begun."),
            Choice(
                "the launch: checking, packing, queueing",
                "The call returns as soon as that is done.",
                right=True,
            ),
            Choice("the kernel, and the way to the GPU and back", "Nobody waited for anything to come back."),
        ),
    ),
    Question(
        "An event pair around one launch says 2 ms, around the next nine 0.4 ms each. Why?",
        (
            Choice(
                "the first call loads code and fills caches; it is not the speed of the kernel",
                "Warm up first, then measure several calls.",
                right=True,
            ),
            Choice(
                "the GPU's clock needs the first call to be set", "Events count on a clock that always runs."
            ),
            Choice("events are only exact if they are far apart", "They resolve about half a microsecond."),
        ),
    ),
    Question(
        "Which streams does a kernel in the legacy default stream wait for?",
        (
            Choice("for none: it is a stream like any other", "That holds for a non-blocking stream."),
            Choice("for all of the device, of whatever kind", "Non-blocking streams are left out."),
            Choice("for those that were made without non_blocking", "And these wait for it.", right=True),
        ),
    ),
    Question(
        "b.wait_event(a.record()) is called. Who waits?",
        (
            Choice("the host, until stream a has come so far", "The host goes on at once."),
            Choice("what is given to b from now on", "Until what a was given so far has ended.", right=True),
            Choice(
                "all of b, what it was given before as well", "What b has already begun or queued goes on."
            ),
        ),
    ),
    Question(
        "Two streams hold a kernel each, and the timeline shows one after the other. What is the likeliest "
        "reason?",
        (
            Choice("the first one alone fills all SMs", "There is no room for the other.", right=True),
            Choice("CUDA deals out streams in turns", "It deals out blocks wherever there is room."),
            Choice("the streams have the same priority", "Equal priority does not keep them apart."),
        ),
    ),
    Question(
        "A copy from an ordinary NumPy array, in a non-blocking stream. The call …",
        (
            Choice(
                "returns at once, as the stream is non-blocking", "That flag is about the default stream."
            ),
            Choice(
                "returns when the device has the data in its memory", "It may still be in a staging buffer."
            ),
            Choice(
                "returns when the host's data has been read",
                "The driver copies it to a page-locked buffer first, on your time.",
                right=True,
            ),
        ),
    ),
    Question(
        "You want to know when stream a has finished, and lose as little time as possible. You call …",
        (
            Choice("cp.cuda.Device().synchronize()", "It waits for all streams of the device."),
            Choice("synchronize() of an event in a", "Or of the stream itself.", right=True),
            Choice("cp.cuda.Stream.null.synchronize()", "It waits for a only if a is a blocking stream."),
        ),
    ),
    Question(
        "A race between two streams gives the right result in each of 1,000 runs. It is …",
        (
            Choice("harmless on this GPU, and wrong on others", "Another driver or load is enough."),
            Choice("no race: one of them would have failed", "What nothing orders may still come in order."),
            Choice("a fault that waits for other timing", "Nothing promises the order.", right=True),
        ),
    ),
    WhyQuestion(
        "Why does non_blocking=True in PyTorch's tensor.to(…) not make a copy asynchronous by itself?",
        (
            "The copy engine reads host memory itself only if it is page-locked: its pages cannot move.",
            "The driver first copies pageable memory to a page-locked buffer, and the call does that itself.",
            "So the call is asynchronous only for page-locked memory (pin_memory()).",
            "And an asynchronous copy to the host has to be waited for before the host reads the result.",
        ),
    ),
    WhyQuestion(
        "Why may a temporary array that another stream still reads be overwritten, although no line of the "
        "program frees it?",
        (
            "When the last reference goes, the block returns to the pool at once; the GPU is not asked.",
            "The pool keeps an arena for each stream: the next array of the stream that made it may get it.",
            "In that stream everything is ordered, but the other stream is not waited for.",
            "Keep the array, or let the stream that made it wait for an event of the one that reads.",
        ),
    ),
)
