"""Predictions of notebook 14."""

from gpulab.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "14-five",
        "The same kernel adds the same floats, with its blocks in five orders. How many different sums come "
        "out?",
        "Each addition of floats is rounded, and which numbers meet depends on the order.",
        choices=("1", "2", "3 to 5"),
        comparison="1",
        misconception="Addition is associative, so the order of additions changes nothing.",
    ),
    PredictionQuestion(
        "14-seed",
        "cp.random.seed(0) stands before each run now. How many different sums do the five orders give?",
        "The seed decides which numbers are drawn. Here none are: what differs is who comes first.",
        choices=("1", "as many as before"),
        comparison="1",
        misconception="A seed makes a program reproducible.",
    ),
    PredictionQuestion(
        "14-whole",
        "Each float is turned into a whole number of 2⁻²⁴ first, and those are added by atomics. How many "
        "different sums in 200 runs?",
        "Sums of whole numbers are exact, whatever their order, for as long as they do not overflow.",
        choices=("1", "2 to 20", "more than 20"),
        comparison="2 to 20",
        misconception="Atomics are what makes results differ.",
    ),
    PredictionQuestion(
        "14-calls",
        "Two generators, one seed. One gives ten numbers in one call, the other five, and five "
        "again. How many "
        "of the ten are the same?",
        "Element e comes from thread e's own sequence: the second call goes on with the second numbers of "
        "threads 0 to 4, and never asks threads 5 to 9.",
        choices=("all ten", "the first five", "none"),
        comparison="all ten",
        misconception="A generator is one long sequence, cut up by calls.",
    ),
    PredictionQuestion(
        "14-gpus",
        "The same seed on a GPU with 40 SMs and on one with 132, a million numbers each, eight blocks of 256 "
        "threads an SM. Which are the same?",
        "Once every thread has given a number, the first one comes round again, earlier on the smaller GPU.",
        choices=("all of them", "as many as the smaller one has threads", "none"),
        comparison="all of them",
        misconception="The same seed gives the same numbers on every GPU.",
    ),
    PredictionQuestion(
        "14-pi",
        "A Monte Carlo estimate of π from a million points: 4,096 threads draw 256 points each, all of them "
        "from the same seed and sequence. How many of the points are different ones?",
        "All threads draw the same points, so it is an estimate from those of one thread, however many there "
        "are.",
        choices=("a million", "4,096", "256"),
        comparison="a million",
        misconception="Threads that run in parallel draw different numbers of the same sequence.",
    ),
    PredictionQuestion(
        "14-restore",
        "A generator's states are kept, a thousand numbers drawn, the states put back. Which thousand comes "
        "next?",
        "Everything that decides what comes next lies in the states: counter, key, and what is "
        "left of a pair "
        "of normal numbers.",
        choices=("the same thousand", "the next thousand", "the first thousand after the seed"),
        comparison="the first thousand after the seed",
        misconception="To restore is to seed again.",
    ),
)
