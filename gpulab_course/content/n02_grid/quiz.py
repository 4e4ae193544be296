"""Questions of notebook 02."""

from gpulab_course.teach.question import Choice, Question, WhyQuestion

TITLE = "Grid, warps, waves"

QUESTIONS = (
    Question(
        "In a block of (16, 16) threads, which threads form warp 0?",
        (
            Choice(
                "those of row y = 0 and the first half of the block's columns", "A row has only 16 threads."
            ),
            Choice(
                "the rows y = 0 and y = 1",
                "Threads are numbered along x first, so two rows of 16 threads make 32.",
                right=True,
            ),
            Choice("the columns x = 0 and x = 1", "Threads are numbered along x first, then y, then z."),
        ),
    ),
    Question(
        "An array has n = 1,000,000 elements, and 3,906 blocks of 256 threads are launched. What happens?",
        (
            Choice(
                "the driver adds the missing block", "The driver launches exactly the grid that you pass."
            ),
            Choice(
                "the launch fails, because 256 does not divide n", "The driver has no information about n."
            ),
            Choice(
                "64 elements keep their old values",
                "3,906 × 256 = 999,936, and no error is raised.",
                right=True,
            ),
        ),
    ),
    Question(
        "A grid fills a GPU exactly once. One more block of the same length is added. The time …",
        (
            Choice("stays the same: a GPU has free capacity", "Every SM is full, so the block has to wait."),
            Choice(
                "grows by less than 1 %, as the work does",
                "The extra block must wait until another block ends.",
            ),
            Choice(
                "grows by far more than the work does",
                "The extra block waits until another block ends. If several blocks shared each SM and "
                "slowed each other down, the extra block runs faster than they did. If only one block fits "
                "on an SM, the extra block takes as long as the others, and the time nearly doubles.",
                right=True,
            ),
        ),
    ),
    Question(
        "A kernel's 48 × 48 matrix is covered by 16 × 16 blocks. The guard reads `if (row * 48 + col < "
        "48 * 48)`. It is …",
        (
            Choice(
                "right for this matrix, and wrong for one of 50 columns",
                "48 is a multiple of 16, so no thread is beyond the last column. With 50 columns some "
                "threads are, and they write into the next row.",
                right=True,
            ),
            Choice(
                "right: the index stays inside the array",
                "An index inside the array can still be that of another thread's element.",
            ),
            Choice("wrong: some elements are written by two threads", "Not here: 16 divides 48."),
        ),
    ),
    Question(
        "Theoretical occupancy is 100 %, and the profiler reports 12 % achieved. What is the most likely "
        "cause?",
        (
            Choice(
                "too many registers", "Too many registers would have lowered the theoretical value as well."
            ),
            Choice(
                "the grid has too few blocks",
                "SMs are idle, or have fewer blocks than they can hold.",
                right=True,
            ),
            Choice(
                "the profiler is wrong, as the two must agree",
                "Theoretical and achieved occupancy are different quantities.",
            ),
        ),
    ),
    Question(
        "Occupancy went from 50 % to 100 % and the time stayed the same. What can explain this?",
        (
            Choice(
                "the memory was saturated before, and cannot go faster",
                "More warps do not make a saturated memory faster.",
                right=True,
            ),
            Choice("the driver had lowered the clock to make up for it", "Clocks do not follow occupancy."),
            Choice("half of the warps were masked off by divergence", "Divergence masks lanes, not warps."),
        ),
    ),
    Question(
        "Block 7 needs a value that block 3 writes. What can it safely do in an ordinary launch?",
        (
            Choice("wait in a loop: block 3 starts before block 7", "No order is guaranteed."),
            Choice(
                "call __syncthreads() to wait for block 3",
                "This barrier waits only for the threads of its own block.",
            ),
            Choice(
                "nothing: use a second launch",
                "Waiting blocks can occupy all SMs, and then block 3 never starts. A cooperative launch has "
                "a barrier for all blocks. Blocks that take their number from a counter can wait for blocks "
                "with lower numbers.",
                right=True,
            ),
        ),
    ),
    WhyQuestion(
        "Why can a kernel with a quarter of the warps be as fast as one with all of them?",
        (
            "The number of bytes (or operations) in flight hides latency, not the number of warps.",
            "bytes in flight = bandwidth × latency (Little's law)",
            (
                "Fewer warps with more independent work each, such as float4 loads or unrolled loops, keep "
                "as many in flight."
            ),
            "Beyond saturation, more warps only wait longer.",
        ),
    ),
)
