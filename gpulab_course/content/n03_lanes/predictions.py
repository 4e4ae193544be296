"""Predictions of notebook 03."""

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "03-mask",
        "`stride = 1`: the lanes take turns. Which active mask (bit i is lane i) does the `if` side run "
        "with?",
        "Lanes 0, 2, 4 … are the even bits, and each hex digit is 0101: a 5.",
        choices=("0xffffffff", "0x55555555", "0xaaaaaaaa", "0x0000ffff"),
        comparison="0x0000ffff",
        misconception="The lanes of one side are packed together.",
    ),
    PredictionQuestion(
        "03-divergence",
        "Loops of 64 rounds on both sides. How many times more warp instructions does `stride = 1` take "
        "than "
        "`stride = 32`?",
        "Every warp walks both sides instead of one. The number of branches is the same.",
        unit="times",
        comparison=32.0,
        misconception="A divergent branch makes the lanes run one by one.",
    ),
    PredictionQuestion(
        "03-predicate",
        "Half of the lanes hold a negative number. Does this warp split at the `if`?",
        "The PTX has a branch, and it diverges. The machine code has a predicated store instead: no "
        "branch, no split.",
        choices=("yes", "no", "only as written"),
        comparison="yes",
        misconception="Every `if` on data is a divergent branch.",
    ),
    PredictionQuestion(
        "03-lock",
        "32 lanes of one warp fight for one lock. When does this kernel hang?",
        "With one program counter for all lanes, the winner waits for the losers at the end of the "
        "loop, and the losers "
        "for the winner. Since Volta the winner goes on by itself.",
        choices=("always", "only before Volta", "never"),
        comparison="always",
        misconception="The lanes of a warp run in lockstep.",
    ),
    PredictionQuestion(
        "03-shuffle",
        "Lane 0 ends with 1 + 2 + … + 32 = 528. Does lane 1 end with 528, too?",
        "Beyond lane 31 there is nobody: a lane gets its own value back, so only lane 0 has it all. "
        "With xor every lane "
        "would.",
        choices=("yes", "no"),
        comparison="yes",
        misconception="A warp sum by `shfl_down` leaves the sum in every lane.",
    ),
    PredictionQuestion(
        "03-half",
        "Lane 0 asks lane 16, which is named in the mask but never makes the call. Lane 0 gets 17. Is "
        "the program right?",
        "A lane that the mask names must make the call; if it does not, what lane 0 gets is undefined. It "
        "may be right today, on this GPU, with this compiler.",
        choices=("yes: 17 is the right result", "yes: the mask names lane 16", "no: nothing promises the 17"),
        comparison="yes: 17 is the right result",
        misconception="A right result proves a right program.",
    ),
    PredictionQuestion(
        "03-match",
        "32 lanes, keys 0, 1, 2, 3, 0, 1, 2, 3, … How many lanes add to a bin after a match?",
        "Four different keys, one speaker for each: 4 of 32 lanes add, an eighth.",
        unit="lanes",
        comparison=1,
        misconception="A warp can aggregate its atomics into one, whatever their addresses.",
    ),
    PredictionQuestion(
        "03-tile",
        "64 rows of 8 elements, summed by a whole warp each and by a tile of 8 lanes each. How many "
        "times more warp "
        "instructions do the whole warps take?",
        "Four tiles share a warp, and their rows are summed by the same instructions. The whole warp "
        "even takes two "
        "steps more.",
        unit="times",
        comparison=1.0,
        misconception="Idle lanes cost nothing.",
    ),
)
