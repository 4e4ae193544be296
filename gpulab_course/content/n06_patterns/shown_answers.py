"""Wrong answers that are common in notebooks 06a and 06b, for their pages for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("06-block", "no guard", "results", "must not load"),
    ShownAnswer("06-block", "every thread writes", "hazards", "One thread of each block"),
    ShownAnswer("06-block", "no barrier between the warps", "results", "__syncthreads()"),
    ShownAnswer("06-block", "thread 0 adds all elements", "parallelism", "few threads"),
    ShownAnswer("06-block", "atomics in shared memory", "budget", "needs no atomics"),
    ShownAnswer("06-warp-scan", "every lane adds, also the lowest ones", "results", "must not add it"),
    ShownAnswer("06-warp-scan", "an exclusive scan", "results", "include the element itself"),
    ShownAnswer("06-warp-scan", "the shuffle is inside the test", "hazards", "test the lane after it"),
    ShownAnswer("06-warp-scan", "shared memory", "budget", "without shared memory"),
    ShownAnswer("06-warp-scan", "lane 0 adds in a loop", "parallelism", "one lane does what 32 could share"),
    ShownAnswer("06-scan", "an inclusive scan", "results", "not include the element itself"),
    ShownAnswer(
        "06-scan", "scans each block separately", "results", "the sum of the blocks before is missing"
    ),
    ShownAnswer("06-scan", "fences for the block only", "hazards", "on both sides"),
    ShownAnswer("06-scan", "does not wait for the flag", "orders", "__threadfence()"),
    ShownAnswer("06-scan", "no guard", "results", "neither load nor store"),
    ShownAnswer("06-compact", "warps take positions from an atomic counter", "budget", "from votes and sums"),
    ShownAnswer("06-compact", "does not write count", "results", "only the last block can compute"),
    ShownAnswer("06-compact", "lanes in reverse order", "results", "in another order"),
    ShownAnswer("06-compact", "ignores the warps before", "results", "in warps before"),
    ShownAnswer("06-compact", "no guard", "results", "they vote no"),
    ShownAnswer("06-blur", "rows not clamped", "results", "clamp row and column"),
    ShownAnswer("06-blur", "zeros beyond the edges", "results", "the nearest pixel counts"),
    ShownAnswer("06-blur", "only one tile per block", "results", "each block goes on"),
    ShownAnswer("06-blur", "a tile of fixed size, 36 × 12", "results", "blockDim.x + 4"),
    ShownAnswer("06-blur", "25 loads per pixel", "budget", "load the tile and its halo once"),
    ShownAnswer("06-softmax", "the maximum begins with a number", "results", "begin with −∞"),
    ShownAnswer("06-softmax", "does not subtract the maximum", "results", "overflows"),
    ShownAnswer("06-softmax", "does not rescale the sum", "results", "common one"),
    ShownAnswer("06-softmax", "does not test for lanes with only −∞", "results", "only −∞"),
    ShownAnswer("06-softmax", "three passes", "budget", "in one pass"),
)
