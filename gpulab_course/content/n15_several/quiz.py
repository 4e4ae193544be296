"""Questions of notebook 15."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "Several GPUs"

QUESTIONS = (
    Question(
        "What does peer access change for a copy between two GPUs that NVLink joins?",
        (
            Choice(
                "nothing: the driver always takes the fastest path", "Without it, copies go through the host."
            ),
            Choice(
                "it goes over NVLink, not through the host's memory",
                "With peer access, kernels can also access the other GPU's memory.",
                right=True,
            ),
            Choice("both GPUs then share one address space and one memory", "Each keeps its own memory."),
        ),
    ),
    Question(
        "Each of n GPUs has an array of N bytes. How many bytes leave each port in a ring all-reduce?",
        (
            Choice(
                "N bytes: each GPU sends its array once", "Each GPU sends a chunk in each of 2·(n − 1) steps."
            ),
            Choice(
                "(n − 1)·N bytes: all others need its array", "The other GPUs need only the sum, in chunks."
            ),
            Choice(
                "2·(n − 1)/n·N bytes",
                "n − 1 chunks of N/n bytes to be added, and n − 1 finished chunks.",
                right=True,
            ),
        ),
    ),
    Question(
        "An all-reduce of 4 KiB on eight GPUs is slow. What helps?",
        (
            Choice(
                "a ring, since it moves the fewest bytes",
                "A ring has the most steps that wait for each other.",
            ),
            Choice(
                "fewer steps that wait for each other, or joining it with others",
                "A small message takes time because of its latency, not because of its bytes.",
                right=True,
            ),
            Choice("a faster link", "Hardly any of the time is spent on the bytes."),
        ),
    ),
    Question(
        "A copy goes from GPU 0 to GPU 1 in a stream of GPU 0. What must happen before a kernel on GPU 1 "
        "reads the result?",
        (
            Choice(
                "nothing: a copy between two GPUs is synchronous for both",
                "The host and GPU 1 continue at once.",
            ),
            Choice(
                "a stream of GPU 1 waits for an event after the copy",
                "Events work across devices.",
                right=True,
            ),
            Choice(
                "a __syncthreads() at the start of the kernel",
                "__syncthreads() orders only the threads of one block.",
            ),
        ),
    ),
    Question(
        "Why are 400 gradients joined before they are sent?",
        (
            Choice(
                "NVLink moves one message at a time",
                "NVLink moves several messages at a time; each has its own latency.",
            ),
            Choice(
                "each message has a latency, whatever its size",
                "400 latencies take longer than the bytes.",
                right=True,
            ),
            Choice(
                "the link compresses joined data during the transfer",
                "The number of bytes is the same.",
            ),
        ),
    ),
    Question(
        "A machine has eight GPUs in two groups of four (islands); NVLink joins the GPUs within an "
        "island. Two "
        "copies of a model are each cut into four parts. Where do the ranks go?",
        (
            Choice(
                "the four parts of a copy onto one island",
                "Ranks that exchange most data stay on the fast links.",
                right=True,
            ),
            Choice(
                "ranks in the order of GPU numbers, wherever the links are",
                "The numbers do not show where the links are.",
            ),
            Choice(
                "two parts of each copy onto each island, so that the load is spread",
                "With this split, each copy has exchanges that leave an island.",
            ),
        ),
    ),
    Question(
        "Attention is split over GPUs by rows, so that each GPU has some of the tokens. What does each GPU "
        "need from the others?",
        (
            Choice(
                "nothing, as softmax works row by row",
                "The scores of each row are computed against all rows.",
            ),
            Choice(
                "the rows that scores are computed against, once",
                "After this exchange, all other steps are local.",
                right=True,
            ),
            Choice(
                "the scores after each step of softmax",
                "The scores can be computed locally from the gathered rows.",
            ),
        ),
    ),
    WhyQuestion(
        "Why does training on many GPUs run one process per GPU, and not one process with many threads?",
        (
            "One host thread for all GPUs becomes the bottleneck: Python launches for one GPU at a time.",
            "A process works in the same way whether its neighbour is on this machine or on another one.",
            "A fault, such as an illegal address, ends only one process, and its rank is known.",
        ),
    ),
)
