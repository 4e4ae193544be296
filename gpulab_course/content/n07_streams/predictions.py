"""Predictions of notebook 07."""

from gpulab_course.content.ranges import ranges
from gpulab_course.teach.question import PredictionQuestion

BLOCK = (1.05, 2, 3.5)

PREDICTIONS = (
    PredictionQuestion(
        "07-flat",
        "The kernel makes 16 times as many turns. Timed by the host's clock around the launch alone: how "
        "many times as long?",
        "The clock saw the launch, which takes the host as long for a small kernel as for a large one.",
        unit="times",
        comparison=16.0,
        misconception="A call that returns has done its work.",
    ),
    PredictionQuestion(
        "07-default",
        "Three kernels, each on a few SMs: the first in stream a, the second in the default "
        "stream, the third in stream b. Made with cp.cuda.Stream(): how many run at the same time?",
        "The default stream waits for all blocking streams that came before, and those that come after wait "
        "for it: three streams, one after the other.",
        unit="kernels",
        comparison=3,
        misconception="Different streams run at the same time.",
    ),
    PredictionQuestion(
        "07-parallel",
        "Two kernels that each fill the GPU {waves} times over, in two streams. How many times as fast as in "
        "one stream?",
        "The SMs are full with one of them. Streams allow work to overlap; they do not make room for it.",
        unit="times",
        comparison=2.0,
        misconception="Two streams are twice as fast as one.",
    ),
    PredictionQuestion(
        "07-blocking",
        "The only change: stream = cp.cuda.Stream() instead of cp.cuda.Stream(non_blocking=True). How many "
        "races does the checker find now?",
        "A blocking stream waits for the default stream, where the array was made. In PyTorch, whose streams "
        "are all non-blocking, the same program is a race.",
        unit="races",
        comparison=1,
        misconception="A stream is a stream: a race does not depend on how it was made.",
    ),
    PredictionQuestion(
        "07-urgent",
        "Four kernels of many waves are queued in one stream. Then a small one comes in a stream of higher "
        "priority. When does it start?",
        "Blocks that run are never stopped, but the next ones to be dealt out are the urgent kernel's.",
        choices=("at once", "when running blocks end", "after all four"),
        comparison="at once",
        misconception="An urgent kernel stops the one that runs.",
    ),
    PredictionQuestion(
        "07-pieces",
        "Copies in, work and copies out in {pieces} pieces and three streams, page-locked: how many times as "
        "fast as in one piece?",
        "At best the longest of the three stations remains, and the first and last piece cannot be hidden; "
        "every piece also costs launches.",
        unit="times",
        comparison=3.0,
        misconception="Three stations that overlap are three times as fast.",
    ),
    PredictionQuestion(
        "07-pageable",
        "The same {pieces} pieces, blocking=False and all, but from pageable memory. How many times as fast "
        "as in one piece?",
        "A copy out of or into pageable memory goes through a buffer of the driver. Copies to the host "
        "return only when they are done, so each piece waits for the one before.",
        unit="times",
        comparison=2.0,
        misconception="blocking=False, or non_blocking=True, makes a copy asynchronous.",
    ),
    PredictionQuestion(
        "07-hidden",
        "Nobody calls synchronize() in this loop of {rounds} rounds. How often does the host wait for the "
        "GPU?",
        "An if on a device array and a float(…) of one each need a value on the host: a copy, and a wait for "
        "it.",
        unit="waits",
        comparison=0,
        misconception="Only synchronize() synchronises.",
    ),
    PredictionQuestion(
        "07-overlap",
        "A step of an environment takes the host {host} µs, a decision takes the GPU {device} µs. With two "
        "environments in turns, how many µs does one step of one environment take on average?",
        "While the host steps one environment, the GPU decides for the other: the longer of the two remains, "
        "and the host's launches on top.",
        unit="µs",
        misconception="Overlap halves the time.",
    ),
    PredictionQuestion(
        "07-block",
        "Four sequences through the attention block, {launches} small launches in all: how many times as "
        "fast in four streams as in one?",
        "{times} times here. Kernels so small fit beside each other, but all of them come from one host, one "
        "after the other. See below in which order.",
        choices=ranges(*BLOCK),
        comparison=ranges(*BLOCK)[3],
        misconception="Four streams, four times as fast.",
    ),
)
