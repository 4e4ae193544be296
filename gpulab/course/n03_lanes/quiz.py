"""Questions of notebook 03."""

from gpulab.teach.question import Choice, Question

TITLE = "Lanes: four questions"

QUESTIONS = (
    Question(
        "Even lanes take the if, odd lanes the else. The warp…",
        (
            Choice("runs one side, then the other", "Each with half of its lanes masked off.", right=True),
            Choice("runs both sides at once", "A warp issues one instruction at a time."),
            Choice("is split into two warps of 16 lanes", "It keeps its 32 lanes, some of them inactive."),
        ),
    ),
    Question(
        "Which condition does not diverge within a warp (blocks of 256 in x)?",
        (
            Choice(
                "`(threadIdx.x / 32) % 2 == 0`", "All lanes of a warp share threadIdx.x / 32.", right=True
            ),
            Choice("`threadIdx.x % 2 == 0`", "Neighbouring lanes differ."),
            Choice("`x[i] > 0`, with x sorted beforehand", "The warp across the sign still diverges."),
        ),
    ),
    Question(
        "`__shfl_down_sync(0xffffffff, v, 16)` is called by lanes 0 to 15 only. That is…",
        (
            Choice(
                "undefined: it may hang or give garbage",
                "The mask names lanes that do not come.",
                right=True,
            ),
            Choice(
                "fine: the other lanes hold v since the line before", "Named lanes must all make the call."
            ),
            Choice("fine since Volta", "Since Volta the mask must be kept."),
        ),
    ),
    Question(
        "What does `__syncwarp()` promise?",
        (
            Choice(
                "The named lanes have arrived and see each other's writes",
                "A barrier and a memory fence for one warp.",
                right=True,
            ),
            Choice("All warps of the block have arrived", "That is `__syncthreads()`."),
            Choice("The warp runs in lockstep from here on", "Since Volta nothing does."),
        ),
    ),
)
