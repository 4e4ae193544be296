"""Predictions of notebook 14."""

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "14-five",
        "The same kernel adds the same floats, with its blocks in five orders. How many different sums are "
        "there?",
        "Each addition of floats is rounded, and the order decides which numbers are added to each other.",
        choices=("1", "2", "3 to 5"),
        comparison="1",
        misconception="Addition is associative, so the order of additions changes nothing.",
    ),
    PredictionQuestion(
        "14-seed",
        "Now cp.random.seed(0) is called before each run. How many different sums do the five orders "
        "produce?",
        "The seed decides which numbers are drawn. This kernel draws none; only the order of its blocks "
        "differs.",
        choices=("1", "as many as before"),
        comparison="1",
        misconception="A seed makes a program reproducible.",
    ),
    PredictionQuestion(
        "14-whole",
        "Each float is first rounded to an integer number of units of 2⁻²⁴, and atomics add these integers. "
        "How many different sums are there in 200 runs?",
        "Integers are added exactly, in any order, as long as the sum does not overflow. Only the "
        "conversion rounds, and it rounds each float alone, in the same way every time.",
        choices=("1", "2 to 20", "more than 20"),
        comparison="2 to 20",
        misconception="Atomics make results differ.",
    ),
    PredictionQuestion(
        "14-calls",
        "Two generators have the same seed. One draws ten numbers in one call, and the other draws five "
        "numbers in each of two calls. How many of the ten numbers are the same?",
        "Element e of a call comes from the sequence of thread e. The second call draws the second numbers "
        "of threads 0 to 4, and none of threads 5 to 9.",
        choices=("all ten", "the first five", "none"),
        comparison="all ten",
        misconception="A generator is one long sequence, which calls cut into pieces.",
    ),
    PredictionQuestion(
        "14-gpus",
        "A generator with the same seed draws a million numbers on a GPU with 40 SMs and on one with 132. It "
        "has eight blocks of 256 threads per SM. Which of the numbers are the same?",
        "Once every thread has drawn a number, the first thread draws the next one. On the smaller GPU that "
        "happens earlier.",
        choices=("all of them", "the first ones, one per thread of the smaller GPU", "none"),
        comparison="all of them",
        misconception="The same seed means the same numbers on every GPU.",
    ),
    PredictionQuestion(
        "14-pi",
        "A Monte Carlo estimate of π uses a million points. 4,096 threads draw 256 points each, all of them "
        "from the same seed and sequence. How many different points are there?",
        "All threads draw the same 256 points, so the estimate is as bad as that of a single thread.",
        choices=("a million", "4,096", "256"),
        comparison="a million",
        misconception="Threads that run in parallel draw different numbers of the same sequence.",
    ),
    PredictionQuestion(
        "14-restore",
        "You save a generator's states, draw a thousand numbers, and restore the states. Which thousand "
        "numbers come next?",
        "The states contain everything that decides the next numbers: the counter, the key, and the unused "
        "one of a pair of normal numbers.",
        choices=("the same thousand", "the next thousand", "the first thousand after the seed"),
        comparison="the first thousand after the seed",
        misconception="Restoring a generator means seeding it again.",
    ),
)
