"""Questions of notebook 03."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "Lanes"

QUESTIONS = (
    Question(
        "Even lanes take the if side of a branch, and odd lanes the else side. The warp …",
        (
            Choice(
                "runs both sides, each with a part of its lanes",
                "While one side runs, the lanes of the other side are inactive.",
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
            Choice(
                "blockIdx.x * blockDim.x + threadIdx.x < n",
                "The warp that contains element n diverges, if n is not a multiple of 32.",
            ),
            Choice(
                "threadIdx.x / 32 % 2 == 0", "threadIdx.x / 32 is equal in all lanes of a warp.", right=True
            ),
        ),
    ),
    Question(
        "A profiler shows no divergent branch, although the source has an `if` that depends on random "
        "data. What is the most likely reason?",
        (
            Choice(
                "the body is short, so the compiler uses predicates instead of a branch",
                "The machine code has no branch.",
                right=True,
            ),
            Choice(
                "all 32 elements of each warp took the same side",
                "That is possible for one warp, but not likely for thousands.",
            ),
            Choice(
                "since Volta, lanes no longer diverge",
                "Lanes still diverge, and each lane has its own program counter.",
            ),
        ),
    ),
    Question(
        "Only lanes 0 to 15 call __shfl_down_sync(0xffffffff, v, 16), and no lane has ended. That is …",
        (
            Choice(
                "fine: lanes 16 to 31 still have their v", "All lanes that the mask names must make the call."
            ),
            Choice(
                "slow, but right, because the hardware waits for the others",
                "Lanes 16 to 31 never make the call, so waiting does not help.",
            ),
            Choice(
                "undefined: the mask names lanes that do not make the call",
                "The program may hang, or the result may be wrong, or seem right.",
                right=True,
            ),
        ),
    ),
    Question(
        "What does __syncwarp() guarantee?",
        (
            Choice(
                "that the warp does not diverge again before the kernel ends",
                "The warp may diverge at the next branch.",
            ),
            Choice(
                "that the named lanes have all arrived and see each other's writes",
                "__syncwarp() is a barrier and a memory fence for one warp.",
                right=True,
            ),
            Choice("that all warps of the block have arrived", "__syncthreads() guarantees this."),
        ),
    ),
    Question(
        "Every lane calls atomicAdd(&total, 1) on one integer. Should you combine these additions by hand?",
        (
            Choice("yes: 32 atomics become one", "The compiler has already combined them."),
            Choice(
                "no: the compiler does it for integers",
                "NVRTC and nvcc do so for integer sums at one address.",
                right=True,
            ),
            Choice(
                "no: atomics of one warp cost no more than one",
                "At one address they run one after the other.",
            ),
        ),
    ),
    Question(
        "A kernel calls __activemask() inside a branch to find the lanes that took it. What is wrong?",
        (
            Choice(
                "nothing guarantees that all lanes of the branch execute it together",
                "The lanes of one side may run in several groups. Vote before the branch.",
                right=True,
            ),
            Choice("__activemask() needs a mask as its argument", "__activemask() takes no argument."),
            Choice(
                "it returns the lanes that are not active", "The function returns the lanes that are active."
            ),
        ),
    ),
    WhyQuestion(
        "Why could a lock within a warp hang before Volta, and why does it work today?",
        (
            (
                "Before Volta a warp had one program counter, so the inactive lanes outside the loop had to "
                "wait."
            ),
            "The lane that had the lock was one of them, so no lane could free it.",
            "Since Volta each lane has its own program counter, so the lane that has the lock can continue.",
            "It is still slow, because 32 lanes take the lock one by one. Let one lane take it for its warp.",
        ),
    ),
)
