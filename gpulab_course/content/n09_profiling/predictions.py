"""Predictions of notebook 09."""

from gpulab_course.teach.question import PredictionQuestion

LESS_THAN_HALF = ("one of them", "two of them", "all three")

PREDICTIONS = (
    PredictionQuestion(
        "09-busy",
        "One block of 32 threads spins on a GPU with {sms} SMs. What does `nvidia-smi` say of GPU-Util?",
        "GPU utilization is the share of time in which at least one kernel ran. How much of it was "
        "used is not in it.",
        choices=("under 2 %", "about 10 %", "about 50 %", "about 100 %"),
        comparison="under 2 %",
        misconception="GPU utilization says how much of the GPU is used.",
    ),
    PredictionQuestion(
        "09-slow",
        "So many blocks of 1,024 threads spin that every SM is full and busy all the time. Which share of "
        "its memory's bandwidth does the GPU use?",
        "A kernel keeps an SM busy while its warps wait, whatever they wait for: memory, a lock, a clock. "
        "That they wait for memory, only a counter of memory can say.",
        choices=("next to none", "about half", "nearly all"),
        comparison="nearly all",
        misconception="Busy but slow means bandwidth.",
    ),
    PredictionQuestion(
        "09-half",
        "Three loops: one waits for data, one asks for its loss in every step, one gives short kernels. In "
        "how many of them does a kernel run for less than half of the time?",
        "Whatever holds the host up leaves the device without work: a loader, a hidden wait, or giving "
        "launches one by one. The figure is the same, the remedies are not.",
        choices=LESS_THAN_HALF,
        comparison="one of them",
        misconception="Less than 50 % utilization means data loading.",
    ),
    PredictionQuestion(
        "09-bytes",
        "The naive product of two float matrices asks for {requested} bytes in all. What share of that does "
        "DRAM move?",
        "Every element is asked for by each thread of a row or a column, and comes from DRAM about once: "
        "caches serve the rest. A roofline of requested bytes shows a kernel that does not exist.",
        choices=("less than 2 %", "2 to 20 %", "more than 20 %"),
        comparison="more than 20 %",
        misconception="A kernel moves the bytes that its threads ask for.",
    ),
    PredictionQuestion(
        "09-clock",
        "A product of half-precision matrices of random numbers keeps the tensor cores of an H200 busy. What "
        "do the clocks of its SMs do?",
        "The board reaches its power limit, and the driver lowers the clocks until the power stays within "
        "it. So the program that needs most power runs at the lowest clock.",
        choices=("they rise", "they stay", "they fall"),
        comparison="they rise",
        misconception="Full load means highest clocks; a lower clock means something is broken.",
    ),
    PredictionQuestion(
        "09-energy",
        "Warps that only look at a clock fill every SM of the H200, and compute nothing. How much power does "
        "it draw, beside the idle GPU?",
        "Warps have to be scheduled, whatever they compute, and scheduling takes power. A GPU that computes "
        "nothing is not free, although it draws far less than one whose tensor cores are busy.",
        choices=("about as much", "half as much again", "more than twice as much"),
        comparison="about as much",
        misconception="A program that computes nothing costs no energy.",
    ),
)
