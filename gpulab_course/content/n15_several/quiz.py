"""Questions of notebook 15."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "Several GPUs"

QUESTIONS = (
    Question(
        "What does peer access change for a copy between two GPUs that NVLink joins?",
        (
            Choice("nothing: the driver always takes the fastest way", "Without it, copies go by the host."),
            Choice(
                "it goes over NVLink, not through the host's memory",
                "And kernels may reach over.",
                right=True,
            ),
            Choice("both GPUs then share one address space and one memory", "Each keeps its own memory."),
        ),
    ),
    Question(
        "Each of n GPUs holds N bytes. How much goes out of each port in a ring all-reduce?",
        (
            Choice("N bytes: each GPU sends its array once", "It sends a chunk in each of 2·(n − 1) steps."),
            Choice("(n − 1)·N bytes: all others need its array", "They need the sum, in chunks."),
            Choice("2·(n − 1)/n·N bytes", "n − 1 chunks of N/n to add, as many to pass sums on.", right=True),
        ),
    ),
    Question(
        "An all-reduce of 4 KiB on eight GPUs is slow. What helps?",
        (
            Choice(
                "a ring, since it moves the fewest bytes",
                "It has the most steps that wait for each other.",
            ),
            Choice(
                "fewer steps that wait for each other, or joining it with others",
                "A small message costs waiting, not bytes.",
                right=True,
            ),
            Choice("a faster link", "Hardly any of the time is spent on the bytes."),
        ),
    ),
    Question(
        "A copy goes from GPU 0 to GPU 1 in a stream of GPU 0. What comes before a kernel on GPU 1 reads it?",
        (
            Choice(
                "nothing: a copy between two GPUs is synchronous for both",
                "The host and GPU 1 go on.",
            ),
            Choice(
                "a stream of GPU 1 waits for an event behind the copy",
                "Events work across devices.",
                right=True,
            ),
            Choice("a __syncthreads() at the start of the kernel", "It orders the threads of one block."),
        ),
    ),
    Question(
        "Why are 400 gradients joined before they are sent?",
        (
            Choice("NVLink moves one message at a time", "It moves several; each has a price of its own."),
            Choice(
                "each message has a price that its size does not change",
                "400 of them cost more than the bytes.",
                right=True,
            ),
            Choice(
                "joined data are compressed by the link while on their way",
                "The bytes are the same.",
            ),
        ),
    ),
    Question(
        "Eight GPUs in two islands of four, joined by NVLink within each. A model is cut in four, two times. "
        "Where do the ranks go?",
        (
            Choice(
                "each group of four onto an island", "What talks most stays on the fast links.", right=True
            ),
            Choice(
                "ranks in the order of GPU numbers, whatever the groups are", "Numbers say nothing of links."
            ),
            Choice(
                "two ranks of each group onto each island, so that the load is spread", "Then all must cross."
            ),
        ),
    ),
    Question(
        "Attention is split over GPUs by rows, so that each holds some of the tokens. What does each of them "
        "need from the others?",
        (
            Choice("nothing, as softmax works row by row", "Each row's scores are against all rows."),
            Choice("the rows that scores are computed against, once", "Then all is local.", right=True),
            Choice(
                "the scores after each step of softmax", "They can be computed here from the gathered rows."
            ),
        ),
    ),
    WhyQuestion(
        "Why does training on many GPUs run one process a GPU, and not one process with many threads?",
        (
            "One host thread that serves all GPUs becomes the limit: Python launches for one at a time.",
            "A process works the same whether its neighbour is on this machine or on another.",
            "A fault, such as an illegal address, ends one process's context and names its rank.",
        ),
    ),
)
