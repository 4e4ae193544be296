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
            Choice("the rows y = 0 and y = 1", "x runs fastest: 2 × 16 threads make 32.", right=True),
            Choice("the columns x = 0 and x = 1", "Threads are numbered x first, then y, then z."),
        ),
    ),
    Question(
        "n = 1,000,000 elements, blocks of 256 threads, 3,906 blocks are launched. What happens?",
        (
            Choice("the driver adds the missing block", "A launch happens as written."),
            Choice("the launch fails, because 256 does not divide n", "The launch knows nothing of n."),
            Choice(
                "64 elements keep their old values", "3,906 × 256 = 999,936. Nobody complains.", right=True
            ),
        ),
    ),
    Question(
        "A grid fills a GPU exactly once. One more block of the same length is added. The time …",
        (
            Choice(
                "stays the same: a GPU has room to spare", "Every SM is full; the block waits for a place."
            ),
            Choice("grows by less than 1 %, as the work does", "The extra block must wait for a place."),
            Choice(
                "grows by far more than the work does",
                "It waits until a place is free. Where blocks share an SM it then runs faster than they did; "
                "where a block fills its SM it does not, and the time nearly doubles.",
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
                "48 is a multiple of 16, so no thread lies beyond the last column. With 50 columns some "
                "do, and they "
                "write into the next row.",
                right=True,
            ),
            Choice("right: the index stays inside the array", "It may still be another thread's element."),
            Choice("wrong: some elements are written by two threads", "Not here: 16 divides 48."),
        ),
    ),
    Question(
        "Theoretical occupancy is 100 %, and the profiler reports 12 % achieved. The likeliest cause?",
        (
            Choice("too many registers", "They would have lowered the theoretical value."),
            Choice(
                "the grid has too few blocks",
                "SMs stand idle, or hold fewer blocks than they could.",
                right=True,
            ),
            Choice("the profiler is wrong, as the two must agree", "They answer different questions."),
        ),
    ),
    Question(
        "Occupancy went from 50 % to 100 % and the time stayed the same. Why?",
        (
            Choice(
                "the memory was saturated before, and cannot go faster",
                "More warps do not make a full bus faster.",
                right=True,
            ),
            Choice("the driver had lowered the clock to make up for it", "Clocks do not follow occupancy."),
            Choice("half of the warps were masked off by divergence", "Divergence masks lanes, not warps."),
        ),
    ),
    Question(
        "Block 7 needs a value that block 3 writes. What may it do in an ordinary launch?",
        (
            Choice("wait in a loop: block 3 starts before block 7", "No order is promised."),
            Choice(
                "call __syncthreads() to wait for block 3", "That waits for the threads of its own block."
            ),
            Choice(
                "nothing safe: leave it to a second launch",
                "Waiting blocks may take all places, and block 3 never starts. A cooperative launch has a "
                "barrier for all blocks; blocks that draw their number from a counter may wait for lower "
                "ones.",
                right=True,
            ),
        ),
    ),
    WhyQuestion(
        "Why can a kernel with a quarter of the warps be as fast as one with all of them?",
        (
            "What hides latency is the number of bytes (or operations) on their way, not of warps.",
            "bytes in flight = bandwidth × latency (Little's law)",
            (
                "Fewer warps with more independent work each, such as float4 loads or unrolled loops, keep "
                "as many on their way."
            ),
            "Beyond saturation, more warps wait in a longer line.",
        ),
    ),
)
