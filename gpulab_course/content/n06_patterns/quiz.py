"""Questions of notebooks 06a and 06b."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "Parallel patterns"

QUESTIONS = (
    Question(
        "A reduction keeps `part[t] += part[t + half]` without a barrier for the last warp. It is …",
        (
            Choice(
                "right, because the lanes of a warp run in lockstep",
                "Since Volta, the lanes of a warp need not run in step.",
            ),
            Choice(
                "a race: one lane may read before another has stored",
                "The last warp needs __syncwarp(), or registers and shuffles.",
                right=True,
            ),
            Choice(
                "right if `part` is volatile",
                "With volatile, the compiler stores the value each time, but no lane waits.",
            ),
        ),
    ),
    Question(
        "Threads without an element take part in a maximum of ints. Which value must they store?",
        (
            Choice("0", "0 is larger than every negative number."),
            Choice("the smallest int", "The smallest int is never larger than an element.", right=True),
            Choice("their own thread number", "A thread number would sometimes be larger than all elements."),
            Choice(
                "none: they return before the tree",
                "No barrier waits for them, but the tree reads their words, to which no thread has stored "
                "a value.",
            ),
        ),
    ),
    Question(
        "Block 0 stores a result, then sets a flag with an atomic. Another block waits for the flag and "
        "reads the result. What is missing?",
        (
            Choice("nothing: an atomic is seen in order", "An atomic does not order other accesses."),
            Choice("`volatile` on the result", "The compiler then loads it each time, in no fixed order."),
            Choice(
                "a fence between result and flag, on both sides",
                "A release on one side and an acquire on the other would also work.",
                right=True,
            ),
            Choice(
                "__syncthreads() after the flag", "This barrier waits only for threads of the same block."
            ),
        ),
    ),
    Question(
        "Each block of a scan waits for the one before it. Why does it take its number with an atomic?",
        (
            Choice(
                "so that it waits only for blocks that have started",
                "The GPU may start blocks in any order.",
                right=True,
            ),
            Choice("so that two blocks never take the same tile", "blockIdx.x would ensure this as well."),
            Choice("so that tiles are read in order, coalesced", "Coalescing happens within a warp."),
        ),
    ),
    Question(
        "A compaction takes positions from atomicAdd(&next, 1). A test compares the results as sets. What "
        "does the test miss?",
        (
            Choice("elements that were lost", "A set of distinct elements would show them."),
            Choice(
                "that the order can change in each run",
                "The thread that comes first gets the position.",
                right=True,
            ),
            Choice(
                "elements that two threads wrote to one position", "An atomic returns each position once."
            ),
        ),
    ),
    Question(
        "A blur's block of 16 × 16 threads loads its tile with a halo of 2 pixels. How many loads is that?",
        (
            Choice("256, one per thread", "The halo must be loaded as well."),
            Choice("320: two rows above and two below", "The halo also has two columns on each side."),
            Choice("400, so some threads load two pixels", "(16 + 4) × (16 + 4).", right=True),
            Choice("6,400: 25 per pixel", "The tile avoids these loads."),
        ),
    ),
    Question(
        "An online softmax meets a score larger than all before. What does it do?",
        (
            Choice("starts the row again", "Starting again would be another pass."),
            Choice(
                "multiplies the sum so far by exp(old − new)",
                "The old terms then have the new largest element in their exponents.",
                right=True,
            ),
            Choice(
                "adds exp(new − old) to the sum",
                "The old terms keep the old largest element in their exponents, and exp can overflow.",
            ),
        ),
    ),
    WhyQuestion(
        "Why is the last version of the reduction as fast as a copy, although only the reduction does "
        "arithmetic?",
        (
            "Both are limited by memory: an addition is far cheaper than the load of the element.",
            "It needs enough bytes in flight: wide loads, several per thread, and enough warps.",
            "The tree runs once per block, so there are few barriers compared with the loads.",
        ),
    ),
)
