"""Predictions of notebook 09."""

from gpulab_course.teach.question import PredictionQuestion

LESS_THAN_HALF = ("one of them", "two of them", "all three")

PREDICTIONS = (
    PredictionQuestion(
        "09-busy",
        "One block of 32 threads spins on a GPU with {sms} SMs. What GPU-Util does `nvidia-smi` show?",
        "GPU utilization is the share of time in which at least one kernel ran. It does not show how "
        "much of the GPU this kernel used.",
        choices=("under 2 %", "about 10 %", "about 50 %", "about 100 %"),
        comparison="under 2 %",
        misconception="GPU utilization shows how much of the GPU is used.",
    ),
    PredictionQuestion(
        "09-slow",
        "Blocks of 1,024 threads spin, and there are enough of them to keep every SM full and busy all the "
        "time. What share of its memory bandwidth does the GPU use?",
        "A kernel keeps an SM busy while its warps wait, for memory, for a lock or for a clock. Only a "
        "counter of memory can show that they wait for memory.",
        choices=("next to none", "about half", "nearly all"),
        comparison="nearly all",
        misconception="A GPU that is busy but slow is limited by its memory bandwidth.",
    ),
    PredictionQuestion(
        "09-half",
        "A program has three loops: one waits for data, one reads its loss in every step, and one launches "
        "short kernels. In how many of them does a kernel run for less than half of the time?",
        "While the host does something else, the device has no work. A loader, a hidden wait and many single "
        "launches all lead to the same low number, but each needs a different remedy.",
        choices=LESS_THAN_HALF,
        comparison="one of them",
        misconception="Less than 50 % utilization means that loading data is too slow.",
    ),
    PredictionQuestion(
        "09-bytes",
        "The naive multiplication of two float matrices requests {requested} bytes in total. What share of "
        "these bytes does DRAM move?",
        "All threads of a row or a column load the same element, but it comes from DRAM only about once. "
        "Caches deliver it for all other loads, so a roofline that counts requested bytes shows the "
        "kernel's dot in the wrong position.",
        choices=("less than 2 %", "2 to 20 %", "more than 20 %"),
        comparison="more than 20 %",
        misconception="A kernel moves the bytes that its threads request.",
    ),
    PredictionQuestion(
        "09-clock",
        "A multiplication of half-precision matrices with random numbers keeps the tensor cores of an H200 "
        "busy. What happens to the clocks of its SMs?",
        "The board reaches its power limit, and the driver lowers the clocks until the power stays within "
        "it. So the program that needs the most power runs at the lowest clock.",
        choices=("they rise", "they stay", "they fall"),
        comparison="they rise",
        misconception="Full load means the highest clocks, and a lower clock means that something is broken.",
    ),
    PredictionQuestion(
        "09-energy",
        "Warps that only read a clock fill every SM of the H200 and compute nothing. How much power does "
        "this GPU draw, compared with an idle one?",
        "Warps have to be scheduled even if they compute nothing, and scheduling takes power. Such a GPU "
        "draws much more than an idle one, although far less than one whose tensor cores are busy.",
        choices=("about as much", "about 1.5 times as much", "more than twice as much"),
        comparison="about as much",
        misconception="A program that computes nothing costs no energy.",
    ),
)
