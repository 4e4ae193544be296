"""Predictions of notebook 02."""

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "02-rows",
        "A block has (24, 6) threads, and six of them have `threadIdx.x = 0`. In how many different warps "
        "are these six threads?",
        "They are threads 0, 24, 48, 72, 96 and 120 of their block. Divided by 32, these are warps 0, 0, 1, "
        "2, 3 and 3.",
        unit="warps",
        comparison=1,
        misconception="A warp follows the shape of its block: a row, a column, or a tile.",
    ),
    PredictionQuestion(
        "02-sectors",
        "Two kernels store the same 64 × 64 floats, one per thread. One computes `row` from `threadIdx.x`, "
        "the other `col`. How many times as many 32-byte sectors does the first one write?",
        "32 lanes that store neighbouring floats write 128 bytes / 32 bytes = 4 sectors. 32 lanes that store "
        "to 32 different rows write 32 sectors.",
        unit="times",
        comparison=1,
        misconception="The same bytes are written, so the traffic is the same.",
    ),
    PredictionQuestion(
        "02-tail",
        "Blocks have 33 threads, and every thread has work to do. What share of the lanes is active, in "
        "percent?",
        "33 threads need two warps, and the second one has one active lane: 33 of 64 lanes are active. Use "
        "multiples of 32.",
        unit="%",
        comparison=97,
        misconception="A block of 33 threads costs 1/32 more than a block of 32 threads.",
    ),
    PredictionQuestion(
        "02-tail-factor",
        "A grid of exactly one wave is extended by one block. How many times as long does the launch take?",
        "The work grows by {more}, but the late block must wait until another block ends. Its own time was "
        "{share} of the time of the others; {company}.",
        unit="times",
        comparison=1.0,
        misconception="The time is proportional to the amount of work.",
    ),
    PredictionQuestion(
        "02-cure",
        "A launch of one wave and one more block must do the same amount of work in less time. Which change "
        "shortens it?",
        "Smaller blocks spread the late threads over several SMs, so each of these SMs has less to do.",
        choices=("larger blocks", "smaller blocks", "a faster memory", "none of these"),
        comparison="larger blocks",
        misconception="Fewer, larger blocks mean less overhead, and therefore a shorter tail.",
    ),
    PredictionQuestion(
        "02-order",
        "Eight blocks take numbers from a counter. Which block can get number 0 in a correct run?",
        "CUDA guarantees no order. Block 0 usually comes first, so a program that relies on this can pass "
        "its tests for a long time.",
        choices=("block 0 alone", "block 0 or block 7", "any of them"),
        comparison="block 0 alone",
        misconception="Blocks start in the order of their numbers.",
    ),
    PredictionQuestion(
        "02-occupancy-32",
        "An SM of this GPU has {places} slots for warps, and can hold at most {blocks} blocks. Blocks have "
        "32 threads. What is the theoretical occupancy, in percent?",
        "{blocks} blocks of one warp each use {blocks} of {places} slots, so the limit on blocks is the "
        "tightest.",
        unit="%",
        comparison=100,
        misconception="Small blocks always fill an SM completely.",
    ),
    PredictionQuestion(
        "02-achieved",
        "A grid has a quarter as many blocks as there are SMs. Each block has {warps} warps, and an SM has "
        "{places} slots. Theoretical occupancy is {theoretical} %. What is the achieved occupancy over the "
        "whole device, in percent?",
        "{blocks} of {sms} SMs have one block each, and one block uses {warps} of {places} slots. The slots "
        "of the other SMs stay empty.",
        unit="%",
        comparison=100,
        misconception="Theoretical occupancy shows how full the GPU is.",
        tolerance=0.2,
    ),
    PredictionQuestion(
        "02-hiding",
        "With 8 warps per SM, the copy with `float` reaches a certain bandwidth. How many warps per SM does "
        "the copy with `float4` need for the same bandwidth?",
        "Each lane loads 16 bytes instead of 4, so a quarter of the warps keeps as many bytes in flight. "
        "From {half} to {full} warps, `float` gains {gain} and `float4` gains {gain4}.",
        unit="warps",
        comparison=8,
        misconception="The number of threads hides latency, whatever they load.",
    ),
)
