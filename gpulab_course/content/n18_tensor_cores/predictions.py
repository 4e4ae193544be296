"""Predictions of notebook 18."""

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "18-rows",
        "A warp shares a matrix of 16 × 16 halves, so each lane holds 8 of them. In how many different rows "
        "are the 8 elements of lane 5?",
        "They are pairs of neighbours: two pairs in one row, and two pairs in the row 8 below.",
        choices=("1 row", "2 rows", "4 rows", "8 rows"),
        comparison="1 row",
        misconception="A lane holds a row, or a part of a row, of each matrix.",
    ),
    PredictionQuestion(
        "18-fewer",
        "A multiplication of 256 × 256 matrices is written twice: with one element per thread and ordinary "
        "multiply-adds, and with wmma. How many times fewer instructions do the warps execute with wmma?",
        "One instruction replaces 128 multiply-adds of a warp. In addition, one load of a fragment replaces "
        "many loads of single elements.",
        choices=("about 2 times", "about 8 times", "about 70 times", "about 1,000 times"),
        comparison="about 8 times",
        misconception="Loads remain as they are, so few instructions are saved.",
    ),
    PredictionQuestion(
        "18-conflict",
        "A tile in shared memory has rows of 64 halves (128 bytes). ldmatrix reads the first 16 bytes of 8 "
        "neighbouring rows at once. How many ways does this access conflict?",
        "A row has 128 bytes, as many as all banks together. Therefore the first 16 bytes of all rows are "
        "in the same four banks.",
        choices=("no conflict", "2 ways", "4 ways", "8 ways"),
        comparison="no conflict",
        misconception="Different rows are in different banks.",
    ),
    PredictionQuestion(
        "18-narrow",
        "Now the rows have only 32 halves, which are 4 vectors. A colleague stores vector v of a row at "
        "v ^ row % 4. How many ways does ldmatrix conflict?",
        "Two rows fill all banks, so the rows 0, 2, 4 and 6 start in the same bank. Their values of row % 4 "
        "are 0, 2, 0 and 2: two of them are equal. With v ^ row / 2 % 4, all are different.",
        choices=("no conflict", "2 ways", "4 ways", "8 ways"),
        comparison="no conflict",
        misconception="A swizzle by the row number always removes all conflicts.",
    ),
    PredictionQuestion(
        "18-barriers",
        "With one buffer, each iteration needs two barriers: one after the tiles are filled, and one before "
        "they are filled again. How many barriers per iteration does a pipeline with three buffers need?",
        "The barrier before tile t is multiplied also shows that all warps have finished tile t − 1. So its "
        "buffer can be filled again.",
        choices=(1, 2, 3, 4),
        comparison=3,
        misconception="Each buffer needs a barrier of its own.",
    ),
    PredictionQuestion(
        "18-cut",
        "A tensor core adds the products 4096 · 4096 = 16,777,216 and 3 · 1. The sum 16,777,219 is exactly "
        "in the middle between two FP32 numbers, 16,777,218 and 16,777,220. Which result does the "
        "accumulator contain?",
        "A tensor core does not round to the nearest number: it cuts off the bits that do not fit. An "
        "ordinary addition in FP32 returns {ordinary}.",
        choices=("16,777,216", "16,777,218", "16,777,220"),
        comparison="16,777,220",
        misconception="FP32 accumulators of tensor cores round as all FP32 additions do.",
    ),
)
