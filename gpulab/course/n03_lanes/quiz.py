"""Questions of notebook 03."""

from gpulab.teach.question import Choice, Question

TITLE = "Lanes: four questions"

QUESTIONS = (
    Question(
        "Even lanes take the if, odd lanes the else. The warp…",
        (
            Choice("runs both sides at the same time", "A warp issues one instruction at a time."),
            Choice("runs one side, then the other", "Each with half of its lanes masked off.", right=True),
            Choice("is split into two warps", "A warp keeps its 32 lanes."),
        ),
    ),
    Question(
        "Which condition does not diverge within a warp (blocks of 256 in x)?",
        (
            Choice("(threadIdx.x / 32) % 2 == 0", "All lanes of a warp share threadIdx.x / 32.", right=True),
            Choice("threadIdx.x % 2 == 0", "Neighbouring lanes differ."),
            Choice("x[i] > 0", "It depends on the data of each lane."),
        ),
    ),
    Question(
        "__shfl_down_sync(0xffffffff, v, 16) is called by lanes 0 to 15 only. That is…",
        (
            Choice("fine, the others hold v", "Lanes named in the mask must all make the call."),
            Choice(
                "an error: the mask names lanes that do not come",
                "Undefined on hardware: it may hang or give garbage.",
                right=True,
            ),
            Choice("slow but right", "It is undefined, not slow."),
        ),
    ),
    Question(
        "What does __syncwarp() promise?",
        (
            Choice("All warps of the block have arrived", "That is __syncthreads()."),
            Choice(
                "The named lanes have arrived and see each other's writes",
                "A barrier and a memory fence for one warp.",
                right=True,
            ),
            Choice("The warp never diverges again", "It may at the next branch."),
        ),
    ),
)
