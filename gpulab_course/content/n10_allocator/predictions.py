"""Predictions of notebook 10."""

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "10-driver",
        "A program makes an array of a million floats, which has 4,000,000 bytes. nvidia-smi shows how much "
        "memory of the device is used. By how much does this number grow?",
        "The pool rounds up to a multiple of 512 bytes. The driver, however, maps whole pages of 2 MiB, and "
        "nvidia-smi counts these pages. The array needs two of them.",
        choices=("4,000,000 bytes", "4,000,256 bytes", "4,194,304 bytes"),
        comparison="4,000,256 bytes",
        misconception="The device counts memory as the pool does.",
    ),
    PredictionQuestion(
        "10-kept",
        "`del x` deletes the only reference to the array. What share of its memory is returned to the "
        "device?",
        "Nothing, because the pool keeps the segment for the next request. cudaMalloc and cudaFree take "
        "longer than most kernels, so a pool calls them as rarely as it can.",
        unit="%",
        kind="share",
        comparison=100,
        misconception="Memory that Python has freed is free for other processes.",
    ),
    PredictionQuestion(
        "10-neighbours",
        "Three arrays of 1 MiB are made one after the other, and then all three are freed. How many segments "
        "does the pool have after a request of 2 MiB?",
        "Pool blocks are joined only within one segment, which is the memory of one cudaMalloc. Each of the "
        "three arrays has a segment of its own, so they are never joined, even if they are neighbours in "
        "memory. The last request needs a fourth segment.",
        unit="segments",
        comparison=3,
        misconception="All free memory can be used for one array.",
    ),
    PredictionQuestion(
        "10-refused",
        "The limit is 2.2 GiB, and 1.0 GiB is in use. What happens to a request of 1.0 GiB?",
        "The free memory consists of five pieces between arrays in use, and a remainder at the end. No piece "
        "is large enough, and a segment with any array in it cannot be returned.",
        choices=("it fits: 1.2 GiB are free", "it fits, after the cache is freed", "out of memory"),
        comparison="it fits, after the cache is freed",
        misconception="After the cache is freed, every request that is smaller than the free memory fits.",
    ),
    PredictionQuestion(
        "10-arena",
        "Stream A frees a pool block of 1 MiB. Then stream B requests 1 MiB. What does the pool do?",
        "Kernels in stream A may still read the pool block. Only later work in A itself is certain to run "
        "after them. Therefore each stream has an arena of its own.",
        choices=(
            "gives B the same pool block",
            "takes a new segment for B",
            "waits for A, then gives B the pool block",
        ),
        comparison="gives B the same pool block",
        misconception="A freed pool block can be used by every stream.",
    ),
    PredictionQuestion(
        "10-thread",
        "Inside `with cp.cuda.using_allocator(own.malloc):` a program starts a thread that makes an array of "
        "1 MiB, and waits for the thread. How many MiB does the pool `own` provide?",
        "using_allocator applies only to the thread that enters it. The other thread allocates from the "
        "default pool.",
        unit="MiB",
        comparison=1,
        misconception="The allocator of a `with` statement applies to all threads.",
    ),
    PredictionQuestion(
        "10-torch",
        "The first tensor of a PyTorch program has one float. How much memory does PyTorch reserve?",
        "It reserves a whole segment, which has space for the next small tensors as well. CuPy's pool "
        "would take 512 bytes.",
        unit="KiB",
        comparison=0.5,
        tolerance=0.1,
        misconception="Both pools reserve what is requested, rounded up.",
    ),
    PredictionQuestion(
        "10-peak",
        "Attention over {n} tokens is computed in the plain steps above. In which line does its memory have "
        "its peak?",
        "In the last line `scores`, `powers` and `weights` are alive, with n × n elements each, and the "
        "output is allocated in addition. The first two are not needed any more, but a variable keeps its "
        "array.",
        choices=(
            "in the first line (h @ h.T)",
            "in the second line (cp.exp)",
            "in the last line (weights @ h)",
        ),
        comparison="in the second line (cp.exp)",
        misconception="An array that is not needed any more takes no memory.",
    ),
    PredictionQuestion(
        "10-twice",
        "The number of tokens doubles. How many times as much memory does the plain version need?",
        "The scores have n² elements, and 2² is 4. That is why programs with long contexts run out of memory "
        "first.",
        unit="times",
        comparison=2,
        tolerance=0.15,
        misconception="Memory grows in proportion to the input.",
    ),
)
