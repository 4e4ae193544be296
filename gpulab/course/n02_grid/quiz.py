"""Questions of notebook 02."""

from gpulab.teach.question import Choice, Question

TITLE = "Grid, warps, waves: four questions"

QUESTIONS = (
    Question(
        "In a block of (16, 16) threads, which threads form warp 0?",
        (
            Choice("the rows y = 0 and y = 1", "x runs fastest: 2 × 16 threads make 32.", right=True),
            Choice("the row y = 0, and half of it is idle", "A warp goes on with the next row: 32 lanes."),
            Choice("the columns x = 0 and x = 1", "Threads are numbered x first, then y, then z."),
        ),
    ),
    Question(
        "n = 1,000,000 and 256 threads a block. How many blocks?",
        (
            Choice("3,907", "(n + 255) // 256.", right=True),
            Choice("3,906", "That covers 999,936 elements; 64 are left out."),
            Choice("as many as the GPU has SMs", "The grid follows from the data; SMs take blocks in turns."),
        ),
    ),
    Question(
        "A grid fills a GPU exactly once. One more block of the same length is added. The time…",
        (
            Choice(
                "grows by much more than the work",
                "A second wave starts for one block: the tail. An H200 took 1.43 times as long.",
                right=True,
            ),
            Choice("stays the same: a GPU has room for it", "Every SM is full; the block waits for a place."),
            Choice(
                "grows in proportion, by less than 1 %", "The work does, but the block waits for a place."
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
            Choice("Half of the SMs were idle", "Occupancy speaks of the places in an SM, not of SMs."),
            Choice(
                "More warps run, each one slower",
                "An SM switches warps for nothing; what they share is issue slots, caches and memory.",
            ),
        ),
    ),
)
