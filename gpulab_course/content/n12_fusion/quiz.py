"""Questions of notebook 12."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "Fusion and JIT"

QUESTIONS = (
    Question(
        "Ten element-wise expressions on large arrays become one kernel, which is about ten times as fast. "
        "Why did the ten kernels take so long?",
        (
            Choice(
                "the launches, which the host has to make one by one",
                "Launches take microseconds; passes over large arrays take far longer.",
            ),
            Choice(
                "intermediate results in memory",
                "Ten passes move ten times the bytes.",
                right=True,
            ),
            Choice("memory allocation for the temporaries", "The pool reuses the same memory."),
            Choice("Python between the launches", "Python runs ahead while the GPU works."),
        ),
    ),
    Question(
        "Why does a fuser end a kernel at a reduction?",
        (
            Choice(
                "a reduction needs the shared memory that other steps would use as well",
                "Any kernel can use shared memory.",
            ),
            Choice(
                "its consumer needs the sum, and other blocks may still be adding",
                "All blocks are done at the end of a kernel.",
                right=True,
            ),
            Choice(
                "sums would be rounded differently",
                "Sums can be rounded differently, but this does not stop a fuser.",
            ),
        ),
    ),
    Question(
        "`e = exp(x)` is summed, and `e` is divided by the sum. Which edge is a fusion boundary, and what "
        "could be done?",
        (
            Choice(
                "from e to the sum: store e, or compute it twice",
                "The kernel of the sum stores only sums. A second exp costs another read of x.",
                right=True,
            ),
            Choice(
                "none: e is computed once, and used twice in the same kernel",
                "The sum and the division, which both use e, are in different kernels.",
            ),
            Choice("from x to e: read x twice", "Element-wise operations share a kernel."),
        ),
    ),
    Question(
        "A ReductionKernel with `max(a, b)` and the identity 0 finds the largest absolute value. What is "
        "wrong?",
        (
            Choice("the identity: it must be −∞", "Absolute values are never below 0."),
            Choice("NaN is lost", "If one operand is NaN, max and fmaxf return the other one.", right=True),
            Choice("an empty array is an error", "With an identity its result is the identity."),
            Choice(
                "negative numbers are lost",
                "Negative numbers are not lost, because the map takes absolute values.",
            ),
        ),
    ),
    Question(
        "A tracing compiler sees `if cp.cuda.is_available():`. What is in its graph?",
        (
            Choice("a branch that contains both of its sides", "The trace followed one side only."),
            Choice(
                "a call that is made every time",
                "The call returned no array, so the trace does not contain it.",
            ),
            Choice(
                "nothing: tracing decided the branch", "The result was folded into a constant.", right=True
            ),
        ),
    ),
    Question(
        "`torch.compile` with its default options compiles a function, which is called with batches of 4, 8, "
        "9 and 16 rows. How often is it compiled?",
        (
            Choice(
                "once: the first program is right for all of them",
                "The first program assumes 4 rows. Its guard fails for 8.",
            ),
            Choice(
                "twice: for 4 rows, then for any number",
                "When a size changes, the second program has a symbol in its place.",
                right=True,
            ),
            Choice(
                "four times: once for each shape",
                "`dynamic=False` does this, and so does the compiler of this notebook.",
            ),
        ),
    ),
    Question(
        "You pass a function with two reductions over a whole array to `cp.fuse`. What does CuPy do on a "
        "GPU?",
        (
            Choice("it refuses", "CuPy refuses only functions that it cannot trace."),
            Choice("it launches one kernel for each expression", "Only the virtual GPU does this."),
            Choice(
                "one kernel with barriers of the grid",
                "Intermediate results still go through memory.",
                right=True,
            ),
        ),
    ),
    WhyQuestion(
        "One kernel can do a matrix multiplication, a layer norm and a GELU with one read and one write of "
        "memory. Why do libraries rarely do so?",
        (
            "A block must own whole rows, so each block reads the whole second matrix, mostly from L2.",
            "Registers have space for a few whole rows only, so each loaded element is used for a few rows.",
            "It saves one round trip of the product, which matters only if it is a large part of all bytes.",
        ),
    ),
)
