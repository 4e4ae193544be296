"""Predictions of notebook 00."""

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "00-faster",
        "NumPy drew this picture on one core of this computer. How many times as long did NumPy take as "
        "the kernel on the GPU that is named above?",
        "The time of the kernel starts with its first block. It does not include queueing the launch and "
        "copying the picture.",
        choices=("less than 10", "10 to 100", "100 to 1,000", "more than 1,000"),
        comparison="10 to 100",
        misconception="A GPU is tens of times as fast as a CPU, whatever is compared.",
    ),
    PredictionQuestion(
        "00-origin",
        "Suppose that your computer were twice as fast, with the same GPU. Which of the two times would "
        "change?",
        "NumPy's time was measured on this computer, so it depends on this computer. The kernel's time "
        "depends on the GPU: it is modelled from published properties of the GPU, or measured on the clock "
        "of the GPU.",
        choices=("both", "only NumPy's", "only the kernel's", "neither"),
        comparison="both",
        misconception="The times of a virtual GPU are those of the CPU that runs it.",
    ),
    PredictionQuestion(
        "00-small",
        "1,000 numbers are in host memory, and each is added to itself. Which one takes less time until "
        "the sums are in host memory again?",
        "{times}. The GPU needs two copies and a launch, even for a few additions. The GPU is worth it if "
        "there is much work, or if the data stays on the device.",
        choices=("NumPy", "the GPU", "both alike"),
        comparison="the GPU",
        misconception="A GPU is always faster, however little work there is.",
    ),
    PredictionQuestion(
        "00-mixing",
        "`x` is in device memory. What does `x + np.ones(6, dtype=np.float32)` return?",
        "`cp` does not copy a NumPy array to the device on its own, because copies are slow.",
        choices=("a device array", "a NumPy array", "an error"),
        comparison="a device array",
        misconception="Arrays move to where they are needed, as with managed memory.",
    ),
    PredictionQuestion(
        "00-threads",
        "A launch has {n} elements, {threads} threads per block, and as few blocks as possible. How many "
        "threads run?",
        "A launch starts whole blocks, here {blocks}. {idle} threads have no element.",
        unit="threads",
        comparison="{n}",
        misconception="The last block has only as many threads as there are elements left.",
    ),
    PredictionQuestion(
        "00-culprit",
        "Without the guard, which is the lowest `threadIdx.x` in block 3 that accesses memory after the "
        "array?",
        "3 × 256 + 232 = 1000 is the first index beyond the last element, 999.",
        kind="index",
        comparison=231,
        misconception="1,000 elements end at index 1,000.",
    ),
    PredictionQuestion(
        "00-silence",
        "The same launch runs on a real GPU, where the arrays come from CuPy's memory pool. What do you "
        "most likely see?",
        "The pool hands out multiples of 512 bytes, so the spare threads write into unused memory, and no "
        "error is raised.",
        choices=("an exception at once", "an exception later", "nothing at all"),
        comparison="an exception at once",
        misconception="The hardware detects the end of an array.",
    ),
    PredictionQuestion(
        "00-sms",
        "`vector_add` runs with {blocks} blocks on a GPU with {sms} SMs. How many SMs run a block?",
        "Each block runs on only one SM, so the other {idle} SMs have nothing to do.",
        unit="SMs",
        comparison="{sms}",
        misconception="A launch spreads over the whole GPU.",
    ),
    PredictionQuestion(
        "00-achieved",
        "An SM of this GPU has slots for {places} warps. What percentage of them is in use on an SM that "
        "has a block of this launch?",
        "One block of 256 threads has 8 warps. The chart shows {theoretical}: the limits of the kernel "
        "allow this occupancy, but there are too few blocks to reach it.",
        unit="%",
        comparison=100,
        misconception="Theoretical occupancy shows how full the SMs are.",
    ),
    PredictionQuestion(
        "00-growth",
        "The launch now has 1,024 times as many blocks. How many times as long does it take?",
        "Four blocks left most of the GPU idle, and such a short launch spends most of its time waiting for "
        "memory. Now all SMs work at the same time, each on several blocks.",
        unit="times",
        comparison=1024,
        misconception="The time is proportional to the work, as on one core.",
        tolerance=0.5,
    ),
)
