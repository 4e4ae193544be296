"""Wrong answers that are common in notebook 03, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("03-branch", "as given", "budget", "Warps still run both sides"),
    ShownAnswer("03-branch", "guards the thread", "results", "the element that the thread really processes"),
    ShownAnswer("03-branch", "no guard", "results", "really processes"),
    ShownAnswer("03-branch", "even elements alone", "results", "had no thread"),
    ShownAnswer("03-branch", "one thread does all", "parallelism", "few threads"),
    ShownAnswer("03-warp-sum", "no guard", "results", "must not load"),
    ShownAnswer("03-warp-sum", "16 bits for warps", "results", "more warps than 16 bits can count"),
    ShownAnswer("03-warp-sum", "thread 0 writes", "results", "lane 0 of every warp must write"),
    ShownAnswer("03-warp-sum", "lane 0 in a loop", "parallelism", "one lane does what 32 could share"),
    ShownAnswer("03-warp-sum", "shared memory", "budget", "by shuffles"),
    ShownAnswer("03-repair", "as given", "results", "lane 0 of every warp must write"),
    ShownAnswer("03-repair", "writing repaired", "results", "0 can be larger"),
    ShownAnswer("03-repair", "writing and least value repaired", "hazards", "does not execute the shuffle"),
    ShownAnswer("03-repair", "no guard on writing", "results", "other warps must not write"),
    ShownAnswer("03-repair", "least is -1", "results", ""),
    ShownAnswer("03-bins", "each for itself", "budget", "hold the same key"),
    ShownAnswer("03-bins", "all peers add", "results", "counts are too high"),
    ShownAnswer("03-bins", "no guard on adding", "results", "neither load nor add"),
    ShownAnswer("03-bins", "one thread counts", "parallelism", "few threads"),
    ShownAnswer("03-bins", "match inside the guard", "hazards", "does not execute the call"),
    ShownAnswer("03-compact", "from above", "results", "in another order"),
    ShownAnswer("03-compact", "first come, first served", "budget", "order of the lanes' atomics"),
    ShownAnswer("03-compact", "keeps NaN", "results", ""),
    ShownAnswer("03-compact", "no guard", "results", "vote no"),
    ShownAnswer("03-compact", "lane 0 does all", "parallelism", ""),
)
