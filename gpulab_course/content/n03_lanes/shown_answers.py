"""Wrong answers that are common in notebook 03, for its page for instructors."""

from gpulab_course.teach.shown import ShownAnswer

SHOWN = (
    ShownAnswer("03-branch", "the given kernel, unchanged", "budget", "Warps still run both sides"),
    ShownAnswer(
        "03-branch",
        "guards the thread instead of the element",
        "results",
        "the element that the thread really handles",
    ),
    ShownAnswer("03-branch", "no guard", "results", "really handles"),
    ShownAnswer("03-branch", "only even elements", "results", "had no thread"),
    ShownAnswer("03-branch", "one thread does all of the work", "parallelism", "few threads"),
    ShownAnswer("03-warp-sum", "no guard", "results", "must not load"),
    ShownAnswer(
        "03-warp-sum", "the warp's number in 16 bits", "results", "more warps than 16 bits can count"
    ),
    ShownAnswer(
        "03-warp-sum", "only thread 0 of the block writes", "results", "lane 0 of every warp must write"
    ),
    ShownAnswer("03-warp-sum", "lane 0 adds in a loop", "parallelism", "one lane does what 32 could share"),
    ShownAnswer("03-warp-sum", "shared memory", "budget", "by shuffles"),
    ShownAnswer("03-repair", "the given kernel, unchanged", "results", "lane 0 of every warp must write"),
    ShownAnswer("03-repair", "only the store is repaired", "results", "0 can be larger"),
    ShownAnswer(
        "03-repair",
        "only the store and the start value are repaired",
        "hazards",
        "does not execute the shuffle",
    ),
    ShownAnswer("03-repair", "no guard for the store", "results", "other warps must not write"),
    ShownAnswer("03-repair", "the start value is -1", "results", ""),
    ShownAnswer("03-bins", "one atomic for each lane", "budget", "hold the same key"),
    ShownAnswer("03-bins", "every lane adds for its group", "results", "counts are too high"),
    ShownAnswer("03-bins", "no guard for the addition", "results", "neither load nor add"),
    ShownAnswer("03-bins", "one thread counts all keys", "parallelism", "few threads"),
    ShownAnswer("03-bins", "the match is inside the guard", "hazards", "does not execute the call"),
    ShownAnswer("03-compact", "counts the higher lanes", "results", "in another order"),
    ShownAnswer("03-compact", "positions by an atomic counter", "budget", "order of the lanes' atomics"),
    ShownAnswer("03-compact", "keeps NaN", "results", ""),
    ShownAnswer("03-compact", "no guard", "results", "vote no"),
    ShownAnswer("03-compact", "lane 0 does all of the work", "parallelism", ""),
)
