"""Predictions of notebook 17."""

from __future__ import annotations

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "17-blocks",
        "A glossary calculates for an H100: blocks of 32 threads use 12 KB of shared memory each, so "
        "228 / 12 = 19 blocks fit on an SM. How many does the occupancy calculator find?",
        choices=("fewer than 19", "19", "more than 19"),
        comparison="19",
        misconception="A block takes exactly the shared memory that it requests.",
        because="Since compute capability 8.0, CUDA reserves 1 KB for each block. 228 / 13 = 17.5, so 17 "
        "blocks fit.",
    ),
    PredictionQuestion(
        "17-turing",
        "A T4 has 64 KB of shared memory per SM, and CUDA reserves nothing there. How many of the same "
        "blocks fit on an SM?",
        unit="blocks",
        comparison=4,
        misconception="CUDA reserves 1 KB for each block on every GPU.",
        because="64 / 12 = 5.3, so 5 blocks fit. For each rule, ask on which devices it is true.",
    ),
    PredictionQuestion(
        "17-naive",
        "The collection marks `B[k*N+col]` as “uncoalesced”. A load of 32 floats takes 4 sectors if they are "
        "neighbours, and 32 sectors in the worst case. How many sectors does a load request of this kernel "
        "take, on average over both loads?",
        unit="sectors",
        comparison=32,
        misconception="A slow kernel must have uncoalesced loads.",
        because="A warp covers 2 rows and 16 columns of the result. It loads 2 elements of A, one per row, "
        "and 16 neighbouring elements of B: 2 sectors each. But there are far too many requests.",
        tolerance=0.3,
    ),
    PredictionQuestion(
        "17-cause",
        "A hidden kernel keeps DRAM busy nearly all of its time. What is its main cause?",
        choices=("memory-bound: nothing to fix", "this does not show the cause", "uncoalesced loads"),
        comparison="memory-bound: nothing to fix",
        misconception="A busy unit is its own cause.",
        because="DRAM is busy in both kernels of the table. One of them moves only the bytes that it needs, "
        "and the other one moves several times as many. A busy unit is a symptom.",
    ),
    PredictionQuestion(
        "17-silence",
        "The tree of this kernel leaves out elements if the number of threads is not a power of two. As a "
        "quick fix, one thread now goes through all columns. Which stage of the judge rejects this version: "
        "results, hazards (races and out-of-bounds accesses) or parallelism (the threads share the work)?",
        choices=("results", "hazards", "parallelism", "none: it is right"),
        comparison="none: it is right",
        misconception="A program with the right results is repaired.",
        because="The results are right in every order of blocks, but one thread does the work of a block.",
    ),
    PredictionQuestion(
        "17-sure",
        "Two candidates answer the same ten cards, and the same seven of their answers are right. One "
        "candidate was sure of all ten, the other only of these seven. Which score is higher?",
        choices=("the one who was always sure", "the one who knew", "the same: seven are seven"),
        comparison="the same: seven are seven",
        misconception="Confidence is a matter of style.",
        because="Each answer costs the square of the difference between the confidence (0.9 for sure, 0.5 "
        "for a guess) and the result (1 or 0).",
    ),
    PredictionQuestion(
        "17-attend",
        "In the naive kernel each thread computes every score by itself. In the good one, the lanes of a "
        "warp share the work on each score. How many times as many sectors does the naive kernel load?",
        unit="times",
        comparison=32,
        misconception="Data that 32 lanes use separately is loaded 32 times.",
        because="Lanes that access the same address share a sector, so it is fewer than 32 times. But each "
        "request loads only one number of a key, and the kernel goes through all keys twice.",
        tolerance=0.4,
    ),
)
