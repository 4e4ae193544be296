"""Questions of notebook 07."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "Timing, streams, events"

QUESTIONS = (
    Question(
        "start = perf_counter(); kernel(…); perf_counter() - start is 6 µs. What took 6 µs?",
        (
            Choice("the kernel, from its first block to its last", "The kernel may not have started yet."),
            Choice(
                "the launch: checking the arguments and putting the kernel into a queue",
                "The call returns as soon as this is done.",
                right=True,
            ),
            Choice(
                "the kernel, and the way to the GPU and back", "No line of the program waits for the GPU."
            ),
        ),
    ),
    Question(
        "Two events around the first launch measure 2 ms, and around each of the next nine 0.4 ms. Why?",
        (
            Choice(
                "The first call also loads code and fills caches.",
                "Warm up first, then measure several calls.",
                right=True,
            ),
            Choice("The GPU's clock is set by the first call.", "The clock of events runs all the time."),
            Choice(
                "Events are exact only if they are far apart.",
                "The resolution of events is about half a microsecond.",
            ),
        ),
    ),
    Question(
        "Which streams does a kernel in the legacy default stream wait for?",
        (
            Choice("none: it is a stream like any other", "Only a non-blocking stream does not wait."),
            Choice(
                "all streams of the device, of any kind",
                "The default stream does not wait for non-blocking streams.",
            ),
            Choice(
                "those that were made without non_blocking=True",
                "These streams also wait for it.",
                right=True,
            ),
        ),
    ),
    Question(
        "b.wait_event(a.record()) is called. What waits?",
        (
            Choice("the host, until stream a has reached the event", "The host continues at once."),
            Choice(
                "work that is enqueued in b from now on",
                "This later work waits for the work that was enqueued in a before.",
                right=True,
            ),
            Choice("all work in b, also earlier work", "Work that is already in b does not wait."),
        ),
    ),
    Question(
        "Two streams have one kernel each, and the timeline shows one after the other. What is the most "
        "likely reason?",
        (
            Choice(
                "the first kernel alone fills all SMs",
                "While the first kernel runs, there is no space for the other one.",
                right=True,
            ),
            Choice(
                "CUDA runs streams in turns", "CUDA starts blocks of all streams wherever there is space."
            ),
            Choice(
                "the streams have the same priority", "Kernels of equal priority can run at the same time."
            ),
        ),
    ),
    Question(
        "A program copies an ordinary NumPy array to the device, in a non-blocking stream. The call …",
        (
            Choice(
                "returns at once, because the stream is non-blocking",
                "The flag changes only the order with the default stream.",
            ),
            Choice(
                "returns when all data is in the memory of the device",
                "Some data may still be in the driver's buffer.",
            ),
            Choice(
                "returns when all data of the host has been read",
                "The driver first copies it to a pinned buffer, during the call.",
                right=True,
            ),
        ),
    ),
    Question(
        "The host must wait until stream a has finished, and for nothing else. You call …",
        (
            Choice("cp.cuda.Device().synchronize()", "This call waits for all streams of the device."),
            Choice(
                "synchronize() of an event in a",
                "Waiting for the stream itself has the same effect.",
                right=True,
            ),
            Choice(
                "cp.cuda.Stream.null.synchronize()", "This call waits for a only if a is a blocking stream."
            ),
        ),
    ),
    Question(
        "A program has a race between two streams, but its result was right in each of 1,000 runs. The "
        "program is …",
        (
            Choice(
                "harmless on this GPU, and wrong on others",
                "On this GPU, too, another driver or another load can change the order.",
            ),
            Choice(
                "right: one of the runs would have failed",
                "Without a wait, the right order can occur by chance.",
            ),
            Choice("wrong, and fails when the timing changes", "Nothing ensures the order.", right=True),
        ),
    ),
    WhyQuestion(
        "Why does non_blocking=True in PyTorch's tensor.to(…) not make a copy asynchronous by itself?",
        (
            (
                "The copy engine can read host memory only if it is pinned, because then its pages cannot "
                "move."
            ),
            "The driver first copies pageable memory to a pinned buffer, and does so during the call.",
            "So the call is asynchronous only for pinned memory (pin_memory()).",
            (
                "After an asynchronous copy to the host, the program must wait before the host reads the "
                "result."
            ),
        ),
    ),
    WhyQuestion(
        "Why can a temporary array that another stream still reads be overwritten, although no line of the "
        "program frees it?",
        (
            (
                "When the last reference disappears, the memory returns to the pool at once, without a "
                "wait for the GPU."
            ),
            (
                "The pool keeps free memory per stream: the next array of the stream that made it can get "
                "this memory."
            ),
            "In that stream everything is in order, but nothing waits for the other stream.",
            (
                "Keep a reference, or let the stream that made the array wait for an event of the stream "
                "that reads it."
            ),
        ),
    ),
)
