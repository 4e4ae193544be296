"""Predictions of notebook 00."""

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "00-faster",
        "NumPy drew this picture on one core of this computer. How many times as long did it take as the "
        "kernel on the GPU named above?",
        "The kernel's clock starts with its first block: queueing it and copying the picture come on top.",
        choices=("less than 10", "10 to 100", "100 to 1,000", "more than 1,000"),
        comparison="10 to 100",
        misconception="A GPU is some tens of times as fast as a CPU, whatever is compared.",
    ),
    PredictionQuestion(
        "00-origin",
        "If your computer were twice as fast, and the GPU the same: which of the two times would change?",
        "A number changes with what it was taken from. NumPy's time is this computer's. The kernel's is the "
        "GPU's: modelled from its published figures, or measured on its own clock.",
        choices=("both", "only NumPy's", "only the kernel's", "neither"),
        comparison="both",
        misconception="A virtual GPU's times are those of the CPU that runs it.",
    ),
    PredictionQuestion(
        "00-small",
        "1,000 numbers lie on the host. Who adds them sooner, so that the sums are on the host again?",
        "{times}. The GPU needs two copies and a launch, however few the additions are. It pays when there "
        "is much work, or when the data stays on the device.",
        choices=("NumPy", "the GPU", "both alike"),
        comparison="the GPU",
        misconception="A GPU is faster, whatever the size of the work.",
    ),
    PredictionQuestion(
        "00-mixing",
        "`x` lies in device memory. What does `x + np.ones(6, dtype=np.float32)` give?",
        "`cp` never copies between the two memories behind your back: copies are slow.",
        choices=("a device array", "a NumPy array", "an error"),
        comparison="a device array",
        misconception="Arrays move to where they are needed, as with managed memory.",
    ),
    PredictionQuestion(
        "00-threads",
        "{n} elements, {threads} threads a block, the smallest grid that covers them: how many threads run?",
        "A launch starts whole blocks: {blocks} of them. {idle} threads find no element.",
        unit="threads",
        comparison="{n}",
        misconception="The last block is cut to what is left.",
    ),
    PredictionQuestion(
        "00-culprit",
        "Without the guard: which is the lowest `threadIdx.x` of block 3 that leaves its array?",
        "3 × 256 + 232 = 1000 is the first index beyond the last element, 999.",
        kind="index",
        comparison=231,
        misconception="1,000 elements end at index 1,000.",
    ),
    PredictionQuestion(
        "00-silence",
        "The same launch on a real GPU, where CuPy's memory pool made the arrays. Most likely you see…",
        "Pools hand out multiples of 512 bytes: the stray threads write into padding, and nobody notices.",
        choices=("an exception at once", "an exception later", "nothing at all"),
        comparison="an exception at once",
        misconception="The hardware knows where an array ends.",
    ),
    PredictionQuestion(
        "00-sms",
        "`vector_add` with {blocks} blocks on a GPU of {sms} SMs: how many SMs get work?",
        "A block runs on one SM only; the other {idle} have nothing to do.",
        unit="SMs",
        comparison="{sms}",
        misconception="A launch spreads over the whole GPU.",
    ),
    PredictionQuestion(
        "00-achieved",
        "An SM of this GPU has places for {places} warps. What share of them is taken on an SM with work?",
        "One block of 256 threads is 8 warps. The {theoretical} on the chart is what the kernel's limits "
        "would allow; there were too few blocks to use it.",
        unit="%",
        comparison=100,
        misconception="Theoretical occupancy says how full the SMs are.",
    ),
    PredictionQuestion(
        "00-growth",
        "1,024 times as many blocks: how many times as long is the launch?",
        "Four blocks left nearly all of the GPU idle, and a launch that short is mostly waiting for memory. "
        "Now all SMs work at once, each on several blocks.",
        unit="times",
        comparison=1024,
        misconception="Time is proportional to the work, as on one core.",
        tolerance=0.5,
    ),
)
