"""Questions of notebook 18."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "Tensor cores"

QUESTIONS = (
    Question(
        "Which threads hold the matrix a while mma.sync multiplies it?",
        (
            Choice("each lane holds the whole matrix", "256 halves would take 128 registers of each lane."),
            Choice(
                "all lanes of a warp together, a part each",
                "A fragment is a matrix that is divided among the lanes of a warp.",
                right=True,
            ),
            Choice(
                "no thread: it is read from shared memory each time",
                "mma.sync takes its operands from registers.",
            ),
        ),
    ),
    Question(
        "Your code reads fragment.x[3] of a wmma accumulator to find the largest element of row 0. It is …",
        (
            Choice(
                "wrong: it is not documented which element x[3] is",
                "Only operations that treat all elements alike are portable.",
                right=True,
            ),
            Choice("right: x[3] is always the element of row 0 and column 3", "Each lane has its own x[3]."),
            Choice("right on lane 0 only", "On no lane is the position of x[3] documented."),
        ),
    ),
    Question(
        "What does ldmatrix with .trans do?",
        (
            Choice(
                "it loads two elements of a column, instead of a row, into each lane",
                "So a matrix b that is stored row by row becomes a fragment of b.",
                right=True,
            ),
            Choice(
                "it transposes the whole tile in shared memory before it loads rows",
                "ldmatrix only reads shared memory.",
            ),
            Choice(
                "it reads 8 columns, which conflicts 8 ways",
                "The same rows are read with .trans and without it.",
            ),
        ),
    ),
    Question(
        "A warp computes 32 × 32 instead of 16 × 16 elements of c. Which of these numbers becomes smaller, "
        "per element of c?",
        (
            Choice(
                "multiplications by tensor cores", "Each element needs the same number of multiplications."
            ),
            Choice(
                "loads from shared memory",
                "Each fragment is used for two multiplications, or four, instead of one.",
                right=True,
            ),
            Choice(
                "registers",
                "The warp needs four times as many accumulators per lane, for four times as many elements.",
            ),
        ),
    ),
    Question(
        "A pipeline has three buffers. Before it uses tile t, it calls __pipeline_wait_prior(0). That is …",
        (
            Choice(
                "right, but it also waits for tile t + 1",
                "The copies of tile t + 1 would have had another iteration to arrive. wait_prior(1) leaves "
                "them pending.",
                right=True,
            ),
            Choice(
                "a race, because the copy of tile t may be pending",
                "wait_prior(0) waits for all copies of the thread.",
            ),
            Choice("the only right call", "Only the copies of tile t are needed."),
        ),
    ),
    Question(
        "Why is the barrier after __pipeline_wait_prior needed?",
        (
            Choice(
                "a thread waits only for its own copies, and it reads those of others",
                "After the barrier, all threads have waited.",
                right=True,
            ),
            Choice("without it, the copies do not start", "The copies start when they are issued."),
            Choice("for the caches, so that the data become visible", "Shared memory is not cached."),
        ),
    ),
    Question(
        "Bias and GELU are applied to the accumulators before they are stored. This avoids …",
        (
            Choice(
                "a conversion of all accumulators from float to half",
                "The conversion is needed in both cases.",
            ),
            Choice(
                "a write and a read of the whole result",
                "Otherwise a second kernel has to read it and write it again.",
                right=True,
            ),
            Choice("registers", "The bias needs additional registers."),
        ),
    ),
    WhyQuestion(
        "Why is a multiplication of large matrices on tensor cores mostly a problem of moving data?",
        (
            "A tensor core multiplies a tile in few cycles, so operands have to arrive at a high rate.",
            "Tiles in shared memory and in registers reduce the bytes per multiplication.",
            "Swizzles keep all banks of shared memory at work.",
            "Asynchronous copies load the next tiles during a multiplication.",
        ),
    ),
)
