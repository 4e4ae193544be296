"""Predictions of notebook 08."""

from gpulab_course.content.ranges import list_ranges
from gpulab_course.teach.question import PredictionQuestion

PAGEABLE = (1.2, 8)
ROUND_TRIP = (2, 10, 30)
MANAGED = (2, 5, 15)

PREDICTIONS = (
    PredictionQuestion(
        "08-pageable",
        "16 MiB are copied to the device, once from an ordinary NumPy array and once from pinned memory. "
        "How many times as long does the ordinary array take?",
        "Here it is {times} times. The copy engine needs memory that does not move. So a core of the CPU "
        "first copies pageable memory, piece by piece, into a buffer of the driver.",
        choices=list_ranges(*PAGEABLE),
        comparison=list_ranges(*PAGEABLE)[0],
        misconception="All host memory is the same, and only the bus limits the rate.",
    ),
    PredictionQuestion(
        "08-returns",
        "Again, 16 MiB are copied: `x.set(pinned)`, `x.set(pageable)`, `x.get(out=pageable, "
        "blocking=False)`. Which call returns before half of its copy is done?",
        "Only the copy engine can work without the host, and it needs pinned memory. `blocking=False` and "
        "`non_blocking=True` request an asynchronous copy, but with pageable memory there is none. At most "
        "the last piece, which is already in the driver's buffer, is still in flight when the call returns.",
        choices=("set, from pinned", "set, from pageable", "get, with blocking=False", "all three"),
        comparison="get, with blocking=False",
        misconception="A copy is asynchronous if the call requests it.",
    ),
    PredictionQuestion(
        "08-early",
        "A PyTorch program launches kernels that set all values of the tensor `y` to 5. While they run, it "
        'calls `early = y.to("cpu", non_blocking=True)`, and the very next line prints `early[0]`. What did '
        "an H200 print?",
        "PyTorch allocated pinned memory, so the call returned at once. The host read the value before the "
        "copy had written it. Synchronize first, and then read.",
        choices=("5.0", "0.0", "an error"),
        comparison="5.0",
        misconception="What a call has returned can be used.",
    ),
    PredictionQuestion(
        "08-thousand",
        "A pinned array is copied to the device, once in {count} pieces of 4 KiB, one by one, and once as "
        "a whole. How many times as long do the pieces take?",
        "Each copy needs a call and a start-up, here {each} µs, regardless of its size. The 4 KiB "
        "themselves need only {crossing} µs.",
        unit="times",
        comparison=1.0,
        tolerance=0.3,
        misconception="The same bytes take the same time.",
    ),
    PredictionQuestion(
        "08-round-trip",
        "Compare `cp.asarray(x.get())` with `x.copy()` for 16 MiB. How many times as long does the path "
        "through the host take?",
        "Here it is {times} times. The data crosses the bus in both directions, with a copy by the CPU "
        "each time, while `x.copy()` never leaves the device's memory.",
        choices=list_ranges(*ROUND_TRIP),
        comparison=list_ranges(*ROUND_TRIP)[1],
        misconception="A path through the host is two copies, so it takes twice as long.",
    ),
    PredictionQuestion(
        "08-zero-copy",
        "A kernel reads each of 4 M floats once, directly from pinned host memory. How many times as long "
        "does that take as a copy to the device and then the kernel?",
        "The bus limits both, and the bytes cross it once in both cases.",
        unit="times",
        comparison=10.0,
        tolerance=0.25,
        misconception="Reading host memory from a kernel is always much slower than copying first.",
    ),
    PredictionQuestion(
        "08-managed",
        "The host has filled 16 MiB of managed memory. A kernel reads them, and then the same kernel runs "
        "again. How many times as long does the first run take?",
        "Here it is {times} times. In the first run, all pages are on the host and cause page faults: the "
        "driver moves the missing pages while the kernel waits. For the second run, they are on the "
        "device.",
        choices=list_ranges(*MANAGED),
        comparison=list_ranges(*MANAGED)[0],
        misconception="Managed memory makes every access slow, the second run as well as the first.",
    ),
    PredictionQuestion(
        "08-prefetched",
        "The host fills the managed memory again, but this time it requests a prefetch before the kernel. "
        "How many times as long as with ordinary device memory does the kernel take?",
        "The prefetch has already moved the pages, so the kernel has no page faults. On real GPUs, the "
        "first access is slower even after a prefetch, which the model leaves out. In recordings, the "
        "kernel after a prefetch took {on_first} times as long as in device memory on an {first}, and "
        "{on_second} times on an {second}.",
        unit="times",
        comparison=5.0,
        tolerance=0.25,
        misconception="Unified memory is the slowest kind of memory.",
    ),
    PredictionQuestion(
        "08-dlpack",
        "The array `x` is in managed memory. A program runs `view = np.from_dlpack(x)`, and then `view[0] "
        "= 7`. What is `x[0]` now?",
        "DLPack passes on the address and makes no copy. Both names refer to the same bytes.",
        choices=("what it was", "7", "an error"),
        comparison="what it was",
        misconception="Going from one library to another makes a copy.",
    ),
)
