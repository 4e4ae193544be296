"""Predictions of notebook 08."""

from gpulab_course.content.ranges import ranges
from gpulab_course.teach.question import PredictionQuestion

PAGEABLE = (1.2, 8)
ROUND_TRIP = (2, 10, 30)
MANAGED = (2, 5, 15)

PREDICTIONS = (
    PredictionQuestion(
        "08-pageable",
        "16 MiB go to the device, once from an ordinary NumPy array, once from pinned memory. How many "
        "times as long does the ordinary array take?",
        "{times} times here. The copy engine needs addresses that do not move. From pageable memory a core "
        "of the CPU first copies piece by piece into a buffer of the driver.",
        choices=ranges(*PAGEABLE),
        comparison=ranges(*PAGEABLE)[0],
        misconception="Host memory is host memory: the bus sets the pace.",
    ),
    PredictionQuestion(
        "08-returns",
        "16 MiB again: `x.set(pinned)`, `x.set(pageable)`, `x.get(out=pageable, blocking=False)`. Which call "
        "returns while most of its copy is still ahead?",
        "Only the copy engine can work without the host, and it needs pinned memory. `blocking=False` and "
        "`non_blocking=True` ask for that; pageable memory cannot give it. At most the last piece that the "
        "driver has taken over is still on its way then.",
        choices=("set, from pinned", "set, from pageable", "get, with blocking=False", "all three"),
        comparison="get, with blocking=False",
        misconception="A copy is asynchronous if the call is told so.",
    ),
    PredictionQuestion(
        "08-early",
        '`early = y.to("cpu", non_blocking=True)` of a PyTorch tensor whose values are all going to be '
        "5. The very next line prints `early[0]`. What did an H200 print?",
        "The call returned at once, and into pinned memory, as it was asked to. The host read before the "
        "copy had written. Synchronize, then look.",
        choices=("5.0", "0.0", "an error"),
        comparison="5.0",
        misconception="What a call has returned can be used.",
    ),
    PredictionQuestion(
        "08-thousand",
        "{count} pieces of a pinned array are sent one by one, 4 KiB each, or the array at once. How many "
        "times as long do the pieces take?",
        "Each copy costs its call and a start-up, {each} µs here, whatever its size; the 4 KiB themselves "
        "cross in {crossing} µs.",
        unit="times",
        comparison=1.0,
        tolerance=0.3,
        misconception="The same bytes take the same time.",
    ),
    PredictionQuestion(
        "08-round-trip",
        "`cp.asarray(x.get())` against `x.copy()`, for 16 MiB. How many times as long does the way by the "
        "host take?",
        "{times} times here. There and back over the bus, with a copy by the CPU on each side; `x.copy()` "
        "never leaves the device's memory.",
        choices=ranges(*ROUND_TRIP),
        comparison=ranges(*ROUND_TRIP)[1],
        misconception="A copy by way of the host is two copies, so it takes twice as long.",
    ),
    PredictionQuestion(
        "08-zero-copy",
        "A kernel reads each of 4 M floats once, directly from pinned host memory. How many times as long "
        "does that take as a copy to the device and then the kernel?",
        "The bus is the bottleneck of both, and the bytes cross it once either way.",
        unit="times",
        comparison=10.0,
        tolerance=0.25,
        misconception="Reading host memory from a kernel is always much slower than copying first.",
    ),
    PredictionQuestion(
        "08-managed",
        "The host has filled 16 MiB of managed memory. A kernel reads them, then the same kernel again. "
        "How many times as long does the first take?",
        "{times} times here. The first finds every page on the host, and faults: the driver moves what it "
        "missed, and the kernel waits. Afterwards the pages are the device's.",
        choices=ranges(*MANAGED),
        comparison=ranges(*MANAGED)[0],
        misconception="Managed memory makes every access slow, the second as well as the first.",
    ),
    PredictionQuestion(
        "08-prefetched",
        "The host fills the managed memory again, and this time asks for a prefetch. How many times as long "
        "as on ordinary device memory does the kernel take after it?",
        "What was slow was moving the pages one fault at a time. On real GPUs something remains of the first "
        "touch, which the model leaves out: on an {first} the kernel after a prefetch was recorded to take "
        "{on_first} times as long as in device memory, on an {second} {on_second} times.",
        unit="times",
        comparison=5.0,
        tolerance=0.25,
        misconception="Unified memory is the slowest kind of memory.",
    ),
    PredictionQuestion(
        "08-dlpack",
        "`view = np.from_dlpack(x)` of a managed device array, then `view[0] = 7`. What is `x[0]` now?",
        "DLPack hands over an address, not a copy. Both names mean the same bytes.",
        choices=("what it was", "7", "an error"),
        comparison="what it was",
        misconception="Going from one library to another makes a copy.",
    ),
)
