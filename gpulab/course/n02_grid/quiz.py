"""Questions of notebook 02."""

from gpulab.teach.question import Choice, Question

TITLE = "Grid, warps, waves: four questions"

QUESTIONS = (
    Question(
        "In a block of (16, 16) threads, which threads form warp 0?",
        (
            Choice("threadIdx.x from 0 to 15, y = 0", "That is half a warp: a warp has 32 lanes."),
            Choice("the rows y = 0 and y = 1", "x runs fastest: 2 × 16 threads make 32.", right=True),
            Choice("the columns x = 0 and x = 1", "Threads are numbered x first, then y, then z."),
        ),
    ),
    Question(
        "n = 1,000,000 and 256 threads a block. How many blocks?",
        (
            Choice("3,906", "That covers 999,936 elements; 64 are left out."),
            Choice("3,907", "(n + 255) // 256.", right=True),
            Choice("1,000,000", "One block an element wastes 255 of 256 threads."),
        ),
    ),
    Question(
        "A grid fills a GPU exactly once. One more block of the same length is added. The time…",
        (
            Choice("stays the same", "Every SM is full; the extra block waits for a free place."),
            Choice("grows by less than 1 %", "The work does, but the extra block must wait for a place."),
            Choice(
                "grows by 40 % or more",
                "A second wave starts for one block: the tail. An H200 took 1.43 times as long.",
                right=True,
            ),
        ),
    ),
    Question(
        "Occupancy went from 50 % to 100 % and the time stayed the same. Why?",
        (
            Choice(
                "The memory was already saturated",
                "Warps hide latency; more of them do not make a full bus faster.",
                right=True,
            ),
            Choice("Occupancy does not exist on that GPU", "Every GPU has resident warps."),
            Choice("The clock halved", "Clocks do not follow occupancy."),
        ),
    ),
)
