"""Questions of notebook 03."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "Lanes"

QUESTIONS = (
    Question(
        "Even lanes take the if, odd lanes the else. The warp …",
        (
            Choice(
                "runs one side, then the other",
                "Each with the lanes of the other side masked off.",
                right=True,
            ),
            Choice("is split into two warps for the branch", "A warp keeps its 32 lanes."),
            Choice("runs both sides at the same time", "A warp issues one instruction at a time."),
        ),
    ),
    Question(
        "Which condition does not diverge within a warp (blocks of 256 in x)?",
        (
            Choice("threadIdx.x % 2 == 0", "Neighbouring lanes differ."),
            Choice("blockIdx.x * blockDim.x + threadIdx.x < n", "In one warp at the ragged end it does."),
            Choice("threadIdx.x / 32 % 2 == 0", "All lanes of a warp share threadIdx.x / 32.", right=True),
        ),
    ),
    Question(
        "A profiler shows no divergent branch, although the source has an `if` on the data. How come?",
        (
            Choice(
                "the compiler put predicates in front of its short body",
                "There is no branch in the machine code.",
                right=True,
            ),
            Choice("all 32 elements happened to agree", "Possible for one warp, hardly for thousands."),
            Choice(
                "since Volta, lanes do not diverge any more", "They do; each has its own program counter."
            ),
        ),
    ),
    Question(
        "__shfl_down_sync(0xffffffff, v, 16) is called by lanes 0 to 15 only. That is …",
        (
            Choice(
                "fine: lanes 16 to 31 still hold their v", "Lanes named in the mask must all make the call."
            ),
            Choice(
                "slow, but right, because the others are waited for",
                "They never come: nobody can wait for them.",
            ),
            Choice(
                "undefined: the mask names lanes that do not come",
                "It may hang, or give garbage, or seem right.",
                right=True,
            ),
        ),
    ),
    Question(
        "What does __syncwarp() promise?",
        (
            Choice(
                "that the warp does not diverge again before the kernel ends", "It may at the next branch."
            ),
            Choice(
                "that the named lanes are here and see each other's writes",
                "A barrier and a memory fence for one warp.",
                right=True,
            ),
            Choice("that all warps of the block have arrived", "That is __syncthreads()."),
        ),
    ),
    Question(
        "Every lane calls atomicAdd(&total, 1) on one integer. Aggregate by hand with a ballot?",
        (
            Choice("yes: 32 atomics become one", "They have become one already."),
            Choice(
                "no: the compiler does it for integers",
                "NVRTC and nvcc do so for integer sums to one address.",
                right=True,
            ),
            Choice("no: atomics of one warp cost no more than one", "To one address they queue up."),
        ),
    ),
    Question(
        "Lanes get their peers from __activemask() inside a branch. What is wrong?",
        (
            Choice(
                "nothing promises that all lanes of the branch are there together",
                "A split warp may be in several parts. Vote before the branch.",
                right=True,
            ),
            Choice("__activemask() needs a mask of its own", "It takes none."),
            Choice("it returns the lanes that are not active", "It returns those that are."),
        ),
    ),
    WhyQuestion(
        "Why could a lock within a warp hang before Volta, and why does it work today?",
        (
            "Before Volta a warp had one program counter; lanes that had left the loop waited, masked off.",
            "The lane that held the lock was among them, so nobody could free it.",
            (
                "Since Volta each lane has a program counter of its own, and every lane makes progress in "
                "its turn."
            ),
            "It is still slow: 32 lanes take 32 turns. Let one lane take the lock for its warp.",
        ),
    ),
)
