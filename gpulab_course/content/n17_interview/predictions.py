"""Predictions of notebook 17."""

from __future__ import annotations

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "17-blocks",
        "Published for an H100: blocks of 32 threads with 12 KB of shared memory, 228 / 12 = 19 an SM. "
        "How many does "
        "the laboratory find?",
        choices=("fewer than 19", "19", "more than 19"),
        comparison="19",
        misconception="An SM's shared memory divided by what a block asks for is what fits.",
        because="From compute capability 8.0 on the driver keeps 1 KB for itself in every block: 228 / 13.",
    ),
    PredictionQuestion(
        "17-turing",
        "And for the same blocks on a T4, which has 64 KB of shared memory an SM and keeps nothing for "
        "itself: how many?",
        unit="blocks",
        comparison=4,
        misconception="Every GPU keeps 1 KB of each block.",
        because="64 / 12, rounded down. A rule has to be asked for its device.",
    ),
    PredictionQuestion(
        "17-naive",
        "A collection of practice kernels marks `B[k*N+col]` of the naive product as “uncoalesced”. Four "
        "sectors hold a warp's 32 floats, and 32 are the worst. How many does a load request of that kernel "
        "take, on average over both loads?",
        unit="sectors",
        comparison=32,
        misconception="What is slow must be uncoalesced.",
        because="One load is the same address for whole rows of lanes, the other one neighbours: nothing "
        "is wasted "
        "in a request. There are only far too many of them.",
        tolerance=0.3,
    ),
    PredictionQuestion(
        "17-cause",
        "A hidden kernel keeps DRAM busy nearly all of its time. What is its main cause?",
        choices=("memory-bound: nothing to mend", "one cannot tell from that", "uncoalesced loads"),
        comparison="memory-bound: nothing to mend",
        misconception="A busy unit explains itself.",
        because="Two kernels stand beside each other, both with a busy DRAM: one moves what it needs, the "
        "other "
        "several times that. Busy is a symptom.",
    ),
    PredictionQuestion(
        "17-silence",
        "A tree loses an element where the number of threads is odd. Somebody lets one thread look at all "
        "columns "
        "instead. Which stage of the judge refuses that: results, hazards (races and stray accesses) or "
        "parallelism (threads share the work)?",
        choices=("results", "hazards", "parallelism", "none: it is right"),
        comparison="none: it is right",
        misconception="What gives the right results is mended.",
        because="Its results are right in every order of blocks, and one thread does the work of a block.",
    ),
    PredictionQuestion(
        "17-sure",
        "Two candidates answer ten cards and have the same seven right. One was sure of all, the other "
        "only of those "
        "seven. Whose score is higher?",
        choices=("the one who was always sure", "the one who knew", "the same: seven are seven"),
        comparison="the same: seven are seven",
        misconception="Confidence is a matter of style.",
        because="A bet that is lost costs the square of how far it was off.",
    ),
    PredictionQuestion(
        "17-attend",
        "One kernel lets each thread compute every score for itself; another lets a warp share each. How "
        "many times as many sectors does the first load?",
        unit="times",
        comparison=32,
        misconception="What 32 lanes compute 32 times is loaded 32 times.",
        because="Lanes that ask for the same address share a request, so it is fewer than 32 times. But each "
        "lane walks over the keys by itself, a number at a time, and all of them are gone through once more.",
        tolerance=0.4,
    ),
)
