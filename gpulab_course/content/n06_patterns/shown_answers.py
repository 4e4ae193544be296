"""Wrong answers that are common in notebook 06, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("06-block", "no guard", "results", "must not load"),
    ShownAnswer("06-block", "every thread writes", "hazards", "One thread of each block"),
    ShownAnswer("06-block", "warps without a barrier", "results", "__syncthreads()"),
    ShownAnswer("06-block", "thread 0 adds", "parallelism", "few threads"),
    ShownAnswer("06-block", "atomics in shared memory", "budget", "needs no atomics"),
    ShownAnswer("06-scan", "inclusive", "results", "leaves it out"),
    ShownAnswer("06-scan", "each block alone", "results", "lack what lies before"),
    ShownAnswer("06-scan", "fences of the block", "hazards", "on both sides"),
    ShownAnswer("06-scan", "does not wait", "orders", "__threadfence()"),
    ShownAnswer("06-scan", "no guard", "results", "neither load nor store"),
    ShownAnswer("06-compact", "an atomic counter of warps", "budget", "let votes and sums"),
    ShownAnswer("06-compact", "count missing", "results", "the last block knows"),
    ShownAnswer("06-compact", "the order of lanes turned", "results", "in another order"),
    ShownAnswer("06-compact", "warps before it left out", "results", "in warps before"),
    ShownAnswer("06-compact", "no guard", "results", "their votes count as no"),
    ShownAnswer("06-blur", "rows not clamped", "results", "clamp row and column"),
    ShownAnswer("06-blur", "zeros beyond the edges", "results", "the nearest pixel counts"),
    ShownAnswer("06-blur", "one tile a block", "results", "each walks on"),
    ShownAnswer("06-blur", "a tile of 36 × 12", "results", "blockDim.x + 4"),
    ShownAnswer("06-blur", "25 loads a pixel", "budget", "load the tile and its halo once"),
    ShownAnswer("06-softmax", "begins with a number", "results", "begin with −∞"),
    ShownAnswer("06-softmax", "no maximum", "results", "overflows"),
    ShownAnswer("06-softmax", "rescaling forgotten", "results", "common one"),
    ShownAnswer("06-softmax", "a lane of −∞", "results", "nothing but −∞"),
    ShownAnswer("06-softmax", "three passes", "budget", "in one pass"),
)
