"""Questions of notebook 12."""

from gpulab.teach.question import Choice, Question, WhyQuestion

TITLE = "Fusion and JIT"

QUESTIONS = (
    Question(
        "Ten element-wise expressions on large arrays become one kernel. What made the ten slow?",
        (
            Choice(
                "the launches, which the host has to make one by one",
                "They cost microseconds; large arrays take far longer.",
            ),
            Choice(
                "intermediate results in memory",
                "Ten passes move ten times the bytes.",
                right=True,
            ),
            Choice("memory allocation for the temporaries", "The pool hands out the same blocks again."),
            Choice("Python between the launches", "It runs ahead while the GPU works."),
        ),
    ),
    Question(
        "Why does a fuser end a kernel at a reduction?",
        (
            Choice("a reduction needs the shared memory that others would use as well", "So may any kernel."),
            Choice(
                "what consumes it needs elements that other blocks still add up",
                "Between them lies an end of all blocks.",
                right=True,
            ),
            Choice("sums would be rounded differently", "They may be, and that stops no fuser."),
        ),
    ),
    Question(
        "`e = exp(x)` is summed, and `e` is divided by the sum. Which edge is red, and what could be done?",
        (
            Choice(
                "from e to the sum: store e, or compute it twice",
                "The sum's kernel keeps nothing but sums; a second exp costs a read of x.",
                right=True,
            ),
            Choice(
                "none: e is computed once, and used twice in the same kernel",
                "Its two users are in different kernels.",
            ),
            Choice("from x to e: read x twice", "Element-wise edges join."),
        ),
    ),
    Question(
        "A ReductionKernel with `max(a, b)` and the identity 0 finds the largest absolute value. What is "
        "wrong?",
        (
            Choice("the identity: it must be −∞", "Absolute values are never below 0."),
            Choice("NaN is lost", "max and fmaxf return the other operand.", right=True),
            Choice("an empty array is an error", "With an identity its result is the identity."),
            Choice("negative numbers are lost", "Not where the map takes absolute values."),
        ),
    ),
    Question(
        "A tracing compiler sees `if cp.cuda.is_available():`. What stands in its graph?",
        (
            Choice("a branch with both sides", "The trace followed one side only."),
            Choice("a call that is made every time", "It gave no array, so nothing of it was written down."),
            Choice("nothing: it became code", "It was folded while tracing.", right=True),
        ),
    ),
    Question(
        "A compiled function is called with batches of 1, 2, 3, … rows. What happens?",
        (
            Choice(
                "one program serves all of them, as it does in C++",
                "The shape is part of what it was compiled for.",
            ),
            Choice(
                "it is compiled for each, up to a limit",
                "Then it runs as written: pad, or let shapes be symbols.",
                right=True,
            ),
            Choice("it is compiled for the largest", "Nobody knows it beforehand."),
        ),
    ),
    Question(
        "`cp.fuse` is given a function with two reductions over a whole array. What does CuPy do on a GPU?",
        (
            Choice("it refuses", "Only what it cannot trace."),
            Choice("it launches one kernel for each expression", "The virtual GPU does that, and says so."),
            Choice(
                "one kernel with barriers of the grid",
                "Intermediate results still go through memory.",
                right=True,
            ),
        ),
    ),
    WhyQuestion(
        "Why can no kernel do a matrix product, a layer norm and a GELU in one read and one write?",
        (
            "A layer norm's row is spread over the tiles of several blocks, and must be complete first.",
            "A block that computed whole rows would read all of the second factor, so traffic grows there.",
            "GELU alone can join the product, as its epilogue: it needs only the element in the register.",
        ),
    ),
)
