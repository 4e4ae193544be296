"""Predictions of notebook 02."""

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "02-rows",
        "A block of (24, 6) threads. Its six threads with `threadIdx.x = 0` stand below each other. In "
        "how many "
        "different warps are they?",
        "They are threads 0, 24, 48, 72, 96 and 120 of their block, and each 32 make a warp: 0, 0, 1, "
        "2, 3, 3.",
        unit="warps",
        comparison=1,
        misconception="A warp follows the shape of its block: a row, a column, or a tile.",
    ),
    PredictionQuestion(
        "02-sectors",
        "Both kernels store the same 64 × 64 floats, one for each thread. The one whose rows run with "
        "`threadIdx.x` writes how many times as many 32-byte sectors as the other?",
        "32 lanes that store side by side fill 128 bytes / 32 bytes = 4 sectors. 32 lanes that stand in 32 "
        "different rows touch 32.",
        unit="times",
        comparison=1,
        misconception="The same bytes are written, so the same traffic results.",
    ),
    PredictionQuestion(
        "02-tail",
        "Blocks of 33 threads, and every thread has work to do. What share of the issued lanes is at "
        "work, in percent?",
        "33 threads take two warps, and the second has one lane at work: 33 of 64. Use multiples of 32.",
        unit="%",
        comparison=97,
        misconception="One thread more costs one thirty-second more.",
    ),
    PredictionQuestion(
        "02-tail-factor",
        "A grid of exactly one wave gets one block more. How many times as long does the launch take?",
        "{more} more work; but the late block waits for a place. It took {share} of the time that the others "
        "took, and {company}.",
        unit="times",
        comparison=1.0,
        misconception="Time follows the amount of work.",
    ),
    PredictionQuestion(
        "02-cure",
        "You may not change the amount of work. Which change shortens that launch?",
        "Smaller blocks make a shorter tail: what comes too late is a smaller piece of the work.",
        choices=("larger blocks", "smaller blocks", "a faster memory", "none of these"),
        comparison="larger blocks",
        misconception="Fewer, larger blocks mean less overhead and so a shorter tail.",
    ),
    PredictionQuestion(
        "02-order",
        "Eight blocks draw numbers from a counter. Which block may draw number 0, in a run that is correct?",
        "CUDA promises no order. Block 0 usually comes first, and a program that counts on it passes "
        "its tests, until "
        "it does not.",
        choices=("block 0 alone", "block 0 or block 7", "any of them"),
        comparison="block 0 alone",
        misconception="Blocks start in the order of their numbers.",
    ),
    PredictionQuestion(
        "02-occupancy-32",
        "An SM here has {places} places for warps and takes at most {blocks} blocks. Blocks have 32 "
        "threads. What is "
        "the theoretical occupancy, in percent?",
        "{blocks} blocks of one warp each take {blocks} of {places} places: the limit on blocks is the "
        "tightest.",
        unit="%",
        comparison=100,
        misconception="Small blocks fill an SM best.",
    ),
    PredictionQuestion(
        "02-achieved",
        "A grid with a quarter as many blocks as there are SMs, {warps} warps in each block, {places} "
        "places on an SM. "
        "Theoretical occupancy is {theoretical} %. And achieved, over the whole device, in percent?",
        "{blocks} of {sms} SMs hold one block each, and one block takes {warps} of {places} places. "
        "What the other SMs could hold does not help.",
        unit="%",
        comparison=100,
        misconception="Occupancy says how full the GPU is.",
        tolerance=0.2,
    ),
    PredictionQuestion(
        "02-hiding",
        "With 8 warps on each SM, the copy by `float` reaches a certain bandwidth. How many warps does "
        "the copy by "
        "`float4` need for the same?",
        "16 bytes a lane instead of 4: a quarter of the warps keeps as many bytes on their way. And from "
        "{half} to {full} warps? `float` gains {gain}, `float4` {gain4}.",
        unit="warps",
        comparison=8,
        misconception="It is the number of threads that hides latency.",
    ),
)
