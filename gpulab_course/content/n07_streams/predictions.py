"""Predictions of notebook 07."""

from gpulab_course.content.ranges import list_ranges
from gpulab_course.teach.question import PredictionQuestion

BLOCK = (1.05, 2, 3.5)

PREDICTIONS = (
    PredictionQuestion(
        "07-flat",
        "The kernel makes 16 times as many iterations. The host's clock times only the launch. How many "
        "times as long is that time?",
        "The clock measured the launch, which takes the same time for a small kernel and for a large one.",
        unit="times",
        comparison=16.0,
        misconception="A call that returns has done its work.",
    ),
    PredictionQuestion(
        "07-default",
        "Three kernels use a few SMs each: the first is in stream a, the second in the default stream, the "
        "third in stream b. The streams are made with cp.cuda.Stream(). How many kernels run at the same "
        "time?",
        "The default stream waits for the earlier work of all blocking streams, and their later work waits "
        "for it. The three kernels run one after the other.",
        unit="kernels",
        comparison=3,
        misconception="Different streams run at the same time.",
    ),
    PredictionQuestion(
        "07-parallel",
        "Two kernels, each of {waves} full waves, run in two streams. How many times as fast is that as in "
        "one stream?",
        "One of the kernels already fills the SMs. Streams allow work to overlap, but they do not free any "
        "SMs.",
        unit="times",
        comparison=2.0,
        misconception="Two streams are twice as fast as one.",
    ),
    PredictionQuestion(
        "07-blocking",
        "The program now uses cp.cuda.Stream() instead of cp.cuda.Stream(non_blocking=True). How many "
        "races does the checker find?",
        "A blocking stream waits for the default stream, where the array was made. In PyTorch, whose streams "
        "are all non-blocking, the same program is a race.",
        unit="races",
        comparison=1,
        misconception="A race does not depend on the kind of stream.",
    ),
    PredictionQuestion(
        "07-urgent",
        "Four kernels of many waves are enqueued in one stream. Then a small kernel is launched in a "
        "stream of higher priority. When does the small kernel start?",
        "Running blocks are not stopped. As soon as some of them end, blocks of the urgent kernel start "
        "next.",
        choices=("at once", "when running blocks end", "after all four"),
        comparison="at once",
        misconception="An urgent kernel stops the one that runs.",
    ),
    PredictionQuestion(
        "07-pieces",
        "Copies in, work and copies out use {pieces} pieces, three streams and pinned memory. How many times "
        "as fast is that as in one piece?",
        "At best the whole takes as long as its longest stage. The first copy in and the last copy out "
        "cannot be hidden, and each piece has start-up times.",
        unit="times",
        comparison=3.0,
        misconception="Three stages that overlap are three times as fast.",
    ),
    PredictionQuestion(
        "07-pageable",
        "The same {pieces} pieces, again with blocking=False, but from pageable memory. How many times as "
        "fast is that as in one piece?",
        "A copy from or to pageable memory goes through a buffer of the driver. Copies to the host return "
        "only when they are complete, so each piece waits for the one before.",
        unit="times",
        comparison=2.0,
        misconception="blocking=False, or non_blocking=True, makes a copy asynchronous.",
    ),
    PredictionQuestion(
        "07-hidden",
        "This loop of {rounds} iterations never calls synchronize(). How often does the host wait for the "
        "GPU?",
        "Both `if` and float(…) need the value of a device array on the host. Each makes a copy and waits "
        "for it: the `if` in every iteration, float(…) in every fifth.",
        unit="waits",
        comparison=0,
        misconception="Only synchronize() synchronizes.",
    ),
    PredictionQuestion(
        "07-overlap",
        "A step of an environment takes the host {host} µs, a decision takes the GPU {device} µs. With two "
        "environments, and the GPU deciding for one while the host steps the other, how many µs pass per "
        "step?",
        "While the host steps one environment, the GPU decides for the other. A step takes the longer of "
        "the two times, and in addition the time of the host's launches.",
        unit="µs",
        misconception="Overlap halves the time.",
    ),
    PredictionQuestion(
        "07-block",
        "Four sequences pass through the attention layer with {launches} small launches in all. How many "
        "times as fast are four streams as one?",
        "Here it is {times} times. Such small kernels fit next to each other, but one host launches all of "
        "them, one after the other. The next cells show why the order matters.",
        choices=list_ranges(*BLOCK),
        comparison=list_ranges(*BLOCK)[3],
        misconception="Four streams are four times as fast.",
    ),
)
