"""Predictions of notebook 03."""

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "03-mask",
        "With `stride = 1`, even lanes take the `if` side and odd lanes the `else` side. Bit i of a mask is "
        "lane i. With which active mask does the `if` side run?",
        "Lanes 0, 2, 4 and so on are the even bits of the mask. Therefore the bits of each hex digit are "
        "0101, which is 5.",
        choices=("0xffffffff", "0x55555555", "0xaaaaaaaa", "0x0000ffff"),
        comparison="0x0000ffff",
        misconception="The lanes of one side are packed together.",
    ),
    PredictionQuestion(
        "03-divergence",
        "Both sides have a loop of 64 iterations. Divide the number of warp instructions for `stride = 1` by "
        "the number for `stride = 32`. What is the result?",
        "With `stride = 1`, every warp runs both sides instead of one. The number of branches in the code is "
        "the same.",
        unit="times",
        comparison=32.0,
        misconception="A divergent branch makes the lanes run one by one.",
    ),
    PredictionQuestion(
        "03-predicate",
        "15 of the 32 lanes have a positive number. Does this warp diverge at the `if`, or does it diverge "
        "only in the PTX (*as written*) and not in the machine code?",
        "The PTX has a branch, and it diverges. The machine code has a predicated store instead, so it "
        "has no branch that could diverge.",
        choices=("yes", "no", "only as written"),
        comparison="yes",
        misconception="Every `if` on data is a divergent branch.",
    ),
    PredictionQuestion(
        "03-lock",
        "All 32 lanes of one warp try to take one lock. When does this kernel hang?",
        "With one program counter for all lanes, the lane that has the lock waits at the end of the loop "
        "for the other lanes, and these wait in the loop for the lock. Since Volta the lane that has the "
        "lock can continue without the others.",
        choices=("always", "only before Volta", "never"),
        comparison="always",
        misconception="The lanes of a warp run in lockstep.",
    ),
    PredictionQuestion(
        "03-shuffle",
        "Lane 0 ends with 1 + 2 + … + 32 = 528. Does lane 1 end with 528 as well?",
        "There is no lane after lane 31. A lane whose source does not exist receives its own value, so only "
        "lane 0 has the sum of all. With `__shfl_xor_sync`, every lane would have it.",
        choices=("yes", "no"),
        comparison="yes",
        misconception="A warp sum by `shfl_down` leaves the sum in every lane.",
    ),
    PredictionQuestion(
        "03-half",
        "Lane 0 reads from lane 16, which the mask names but which never makes the call. Lane 0 receives "
        "17. Is the program right?",
        "A lane that the mask names must make the call. If it does not, the value that lane 0 receives is "
        "undefined. It may be right today, on this GPU, with this compiler.",
        choices=("yes: 17 is the right result", "yes: the mask names lane 16", "no: nothing promises the 17"),
        comparison="yes: 17 is the right result",
        misconception="A right result proves a right program.",
    ),
    PredictionQuestion(
        "03-match",
        "The 32 lanes of a warp have the keys 0, 1, 2, 3, 0, 1, 2, 3 and so on. How many lanes add to a bin "
        "in `agreed`, after the match?",
        "There are four different keys, and one lane adds for each of them: 4 of 32 lanes, which is an "
        "eighth.",
        unit="lanes",
        comparison=1,
        misconception="A warp can aggregate its atomics into one, whatever their addresses.",
    ),
    PredictionQuestion(
        "03-tile",
        "64 rows of 8 elements are summed, first by a whole warp per row, then by a tile of 8 lanes per "
        "row. How many times as many warp instructions do the whole warps need as the tiles?",
        "Four tiles share a warp, and the same instructions sum their four rows. In addition, a whole warp "
        "needs two more steps.",
        unit="times",
        comparison=1.0,
        misconception="Idle lanes cost nothing.",
    ),
)
