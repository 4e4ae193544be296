"""Predictions of notebook 19."""

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "19-changes",
        "A row has 1,024 scores in random order. The loop goes over them and keeps the largest score so far. "
        "How often is a score larger than all before it (the mean over all rows, the first score included)?",
        "Score number j is the largest of the first j with probability 1 / j, so the mean is near 1 + 1/2 "
        "+ 1/3 + … + 1/1024 = 7.5. In nearly all iterations, the factor for rescaling is 1.",
        unit="times",
        comparison=512,
        misconception="The largest score changes in about half of the iterations, so rescaling is expensive.",
    ),
    PredictionQuestion(
        "19-registers",
        "With d = 128 and one thread for each row of `q`, a thread keeps 128 numbers of `q` and 128 "
        "numbers of the result. The compiler knows all indices. Where are these numbers?",
        "A thread has at most 255 registers, and it needs some of them for addresses and temporary "
        "values. The compiler spilled {spilled} bytes per thread.",
        choices=(
            "all in registers",
            "most in registers, the others in local memory",
            "all in local memory",
        ),
        comparison="all in registers",
        misconception="If all indices are known, an array is in registers, however large it is.",
    ),
    PredictionQuestion(
        "19-double",
        "The number of tokens `n` doubles, and the rows of a tile stay the same. How many times as many "
        "bytes of `k` and `v` do the SMs load in total?",
        "There are twice as many blocks, and each of them loads twice as many keys and values. Only the "
        "extra memory of flash attention is linear in n, not its traffic.",
        unit="times",
        comparison=2,
        misconception="Flash attention makes the traffic of attention linear.",
    ),
    PredictionQuestion(
        "19-late",
        "With a causal mask, nearly half of the tiles are skipped. Here the grid has 16 blocks of 64 "
        "rows, which all run at the same time. Compared with the kernel that loads all tiles, the time …",
        "The last block still needs all tiles, and the kernel ends when its last block ends. In numbers, "
        "the time is {percent} % of the time without skipping. More blocks than fit on the GPU at once "
        "would help, because then a short block makes room for another one.",
        choices=("falls to about one half", "falls by less than a third", "falls to about one quarter"),
        comparison="falls to about one half",
        misconception="Half of the work takes half of the time.",
    ),
    PredictionQuestion(
        "19-split",
        "One query needs 8,192 keys. In one launch, a block of 4 warps does all the work. In another "
        "launch, 32 such blocks share the keys, and the last block combines the results. The second "
        "launch is …",
        "It was {factor} times as fast here. A single block uses one SM, and only four warps wait for "
        "memory at the same time. The combining step is short compared with this.",
        choices=(
            "about as fast, because the bytes are the same",
            "two to four times as fast",
            "more than eight times as fast",
        ),
        comparison="about as fast, because the bytes are the same",
        misconception="Decoding moves the same bytes with any grid, so the grid does not matter.",
    ),
    PredictionQuestion(
        "19-group",
        "Eight query heads share one head of keys and values, instead of having one each. Which of these "
        "falls to about an eighth?",
        "Each query still needs a score with each key, so the arithmetic is the same. Only the keys and "
        "values, which are stored and loaded, become fewer.",
        choices=(
            "the arithmetic",
            "the bytes of keys and values",
            "both of them",
        ),
        comparison="both of them",
        misconception="Grouped heads reduce the arithmetic.",
    ),
    PredictionQuestion(
        "19-waste",
        "Sequences have random lengths from 1 to 2,048 tokens. Each one gets as many pages of 16 tokens as "
        "it needs. What percentage of the slots in these pages is unused?",
        "Only the last page of a sequence is partly used: on average 7.5 of its 16 slots are free, and a "
        "sequence has about 1,024 tokens. If each sequence reserves 2,048 slots, {reserved} % of them are "
        "unused.",
        unit="%",
        comparison=50,
        misconception="Pages waste about as much memory as reserving the longest length.",
    ),
    PredictionQuestion(
        "19-distance",
        "A rotary embedding rotates a query at position 12 and a key at position 5. Then both positions "
        "become larger by 1,000. The score of the two …",
        "The angle between the two depends only on the difference of the positions, which is still 7.",
        choices=("stays the same", "becomes much smaller", "changes its sign"),
        comparison="becomes much smaller",
        misconception="A rotary embedding encodes absolute positions in the score.",
    ),
    PredictionQuestion(
        "19-tensor",
        "The same forward pass has FP16 inputs now, and tensor cores compute both matrix multiplications. "
        "It is recorded on an H200 with d = 128, 4,096 tokens and 16 heads. How many times as fast is it as "
        "the kernel on CUDA cores in FP32?",
        "Half precision halves the bytes, but this kernel is limited by arithmetic. The tensor cores of an "
        "H200 have about 15 times the throughput of its CUDA cores (published: 989 TFLOP/s in FP16, 67 "
        "TFLOP/s in FP32).",
        unit="times",
        comparison=2,
        misconception="Half precision is twice as fast, because it halves the bytes.",
        tolerance=0.4,
    ),
    PredictionQuestion(
        "19-kept",
        "In training, the forward pass stores something so that the backward pass can compute the weights "
        "again, tile by tile. Besides `q`, `k`, `v` and the result: how many numbers per row of `q` are "
        "enough?",
        "One number is enough: the largest score plus the logarithm of the sum.",
        unit="numbers",
        comparison=1024,
        misconception="The backward pass needs the weights of the forward pass in memory.",
    ),
)
