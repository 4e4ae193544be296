"""Questions of notebook 06."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "Parallel patterns"

QUESTIONS = (
    Question(
        "A reduction keeps `part[t] += part[t + half]` without a barrier for the last warp. It is …",
        (
            Choice("right, because the lanes of a warp run in lockstep", "They need not, since Volta."),
            Choice(
                "a race: one lane may read before another has stored",
                "It needs __syncwarp(), or registers and shuffles.",
                right=True,
            ),
            Choice("right if `part` is volatile", "That makes the compiler store; it makes no lane wait."),
        ),
    ),
    Question(
        "Which element do threads without one add to a maximum of ints?",
        (
            Choice("0", "It beats every negative number."),
            Choice("the smallest int", "It never wins.", right=True),
            Choice("their own thread number", "It would win now and then."),
            Choice(
                "none: they return before the tree",
                "No barrier waits for them, but the tree reads their elements, which nothing has stored.",
            ),
        ),
    ),
    Question(
        "Block 0 stores a result, then sets a flag by an atomic. What else does the block that reads it "
        "need?",
        (
            Choice("nothing: an atomic is seen in order", "It orders nothing but itself."),
            Choice("`volatile` on the result", "The compiler then loads it each time; no order comes of it."),
            Choice(
                "a fence between result and flag, on both sides",
                "Or a release on one side and an acquire on the other.",
                right=True,
            ),
            Choice("__syncthreads() behind the flag", "It waits for the own block only."),
        ),
    ),
    Question(
        "Each block of a scan waits for the one before it. Why does it take its number by an atomic?",
        (
            Choice(
                "so that it waits only for blocks that have begun",
                "The order of beginning is up to the GPU.",
                right=True,
            ),
            Choice("so that two blocks never take the same tile", "blockIdx.x would see to that as well."),
            Choice("so that tiles are read in order, coalesced", "Coalescing happens within a warp."),
        ),
    ),
    Question(
        "A compaction takes places from atomicAdd(&next, 1). A test compares it as a set. What does it miss?",
        (
            Choice("elements that were lost", "A set of distinct elements would show them."),
            Choice(
                "that the order is another one each time", "Places go to whoever comes first.", right=True
            ),
            Choice("elements that two threads wrote to one place", "An atomic gives every place once."),
        ),
    ),
    Question(
        "A blur's block of 16 × 16 threads loads its tile with a halo of 2 pixels. How many loads is that?",
        (
            Choice("256, one a thread", "The halo has to come from somewhere."),
            Choice("320: two rows above and two below", "And two columns on either side."),
            Choice("400, so some threads load two pixels", "(16 + 4) × (16 + 4).", right=True),
            Choice("6,400: 25 for each pixel", "That is what the tile saves."),
        ),
    ),
    Question(
        "An online softmax meets a score larger than all before. What does it do?",
        (
            Choice("begins the row again", "That would be a second pass, or more."),
            Choice(
                "multiplies the sum so far by exp(old − new)",
                "The sum is then relative to the new largest one.",
                right=True,
            ),
            Choice(
                "adds exp(new − old) to the sum",
                "The old terms stay relative to the old one, and it may overflow.",
            ),
        ),
    ),
    WhyQuestion(
        "Why does a reduction's last rung end level with a copy, although it computes and a copy does not?",
        (
            "Both are limited by memory: an addition is far cheaper than the load of what is added.",
            "It needs enough bytes in flight: wide loads, several a thread, and enough warps.",
            "The tree is climbed once a block, so that its barriers are few beside the loads.",
        ),
    ),
)
