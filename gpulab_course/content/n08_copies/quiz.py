"""Questions of notebook 08."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "Moving data"

QUESTIONS = (
    Question(
        'A training loop calls `batch.to("cuda", non_blocking=True)` on an ordinary tensor. The host …',
        (
            Choice(
                "continues at once, because the flag requests that",
                "The flag requests it, but only a copy from pinned memory can be asynchronous.",
            ),
            Choice(
                "waits until the driver has read the batch",
                "The driver copies it through a pinned buffer of its own. Pin the batch first.",
                right=True,
            ),
            Choice("gets an error, since the tensor is not pinned", "The copy works, but the host waits."),
        ),
    ),
    Question(
        "Pinned memory makes copies faster. So a program should pin all of its arrays?",
        (
            Choice(
                "yes: pinned memory has no disadvantage",
                "Pinned memory cannot be moved or swapped out, and pinning takes long.",
            ),
            Choice(
                "no: the CPU reads pinned memory more slowly",
                "For the CPU, pinned memory is ordinary memory.",
            ),
            Choice(
                "no: pin a few buffers and use them again",
                "Pinning takes many times as long as a copy, and leaves less memory to other programs.",
                right=True,
            ),
        ),
    ),
    Question(
        "A kernel needs 40 rows of a table of 3 GB in host memory, and only the device knows which. What is "
        "best?",
        (
            Choice("copy the table, then run the kernel", "All 3 GB would cross the bus for 40 rows."),
            Choice(
                "pin the table and let the kernel read the rows",
                "Only what the kernel reads crosses the bus, and the host never waits.",
                right=True,
            ),
            Choice(
                "copy the row numbers to the host and gather there",
                "A gather on the host works, but the host waits, and data crosses the bus twice.",
            ),
        ),
    ),
    Question(
        "A kernel reads every element of an array eight times. The array is pinned host memory. Compared "
        "with a copy first, reading it in place …",
        (
            Choice(
                "takes about as long: the L2 cache keeps it",
                "The L2 cache does not keep mapped host memory (NVIDIA's Best Practices Guide).",
            ),
            Choice(
                "is faster, because there is no copy",
                "A copy would cross the bus once, and the kernel crosses it eight times.",
            ),
            Choice(
                "takes eight times as long, or more",
                "Each read crosses the bus again. Copy data that is used more than once.",
                right=True,
            ),
        ),
    ),
    Question(
        "Managed memory is filled by the host, then read by one kernel after another. What helps most?",
        (
            Choice(
                "a prefetch to the device before the first kernel",
                "The pages move in large pieces, without faults, while the host does something else.",
                right=True,
            ),
            Choice(
                "a synchronize after each of the kernels",
                "A synchronize orders the work, but does not move pages earlier.",
            ),
            Choice("smaller blocks, so that fewer pages fault at once", "The pages are the same."),
        ),
    ),
    Question(
        "`float(loss)` is in the innermost loop. What does it cost?",
        (
            Choice(
                "four bytes over the bus, which is next to nothing",
                "The bytes are cheap, but the wait is not.",
            ),
            Choice(
                "a wait for all earlier work, in each iteration",
                "The copy comes after the work in its stream, and the host needs its result.",
                right=True,
            ),
            Choice(
                "nothing, because the copy is asynchronous",
                "The host needs the value to make the Python float.",
            ),
        ),
    ),
    Question(
        "Two processes share an array on one GPU. What does one process pass to the other?",
        (
            Choice("the address of the array on the device", "An address is valid only in its own process."),
            Choice("a pickle of the array", "A pickle is a copy through the host."),
            Choice(
                "a handle of 64 bytes",
                "`ipcGetMemHandle`; the other process opens it and gets an address of its own.",
                right=True,
            ),
        ),
    ),
    WhyQuestion(
        "Why can a copy from pageable memory not be asynchronous?",
        (
            "The copy engine reads physical addresses by itself, but the system may move pageable memory.",
            "So the driver must first copy the data to memory that cannot move, its own pinned buffer.",
            "A core of the CPU makes this copy during the call.",
            "The call cannot return before the last piece has been read.",
        ),
    ),
)
