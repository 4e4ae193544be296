"""Predictions of notebook 14."""

from gpulab_course.teach.question import PredictionQuestion

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
        "Each float is first rounded to a whole number of units of 2⁻²⁴, and those are added by atomics. How "
        "many different sums are there in 200 runs?",
        "Whole numbers are added exactly, in any order, as long as the sum does not overflow. Only the "
        "conversion rounds, and it rounds each float alone, in the same way every time.",
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
        "A generator with the same seed draws a million numbers on a GPU with 40 SMs and on one with 132. It "
        "has eight blocks of 256 threads per SM. Which of the numbers are the same?",
        "Once every thread has drawn a number, the first thread draws the next one. On the smaller GPU that "
        "happens earlier.",
        choices=("all of them", "the first ones, one per thread of the smaller GPU", "none"),
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
