"""Predictions of notebook 01."""

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "01-context",
        "A process imports CuPy, counts the devices, makes a kernel object, and then makes `cupy.zeros(1)`, "
        "an array of 8 bytes. How much device memory does the process use then?",
        "The context, which is the state of the process on the GPU, takes {held} MiB here. The first call "
        "that needs it creates it, and every process has its own.",
        choices=("about 1 MiB", "about 20 MiB", "about 500 MiB", "about 10,000 MiB"),
        comparison="about 1 MiB",
        misconception="A process uses as much device memory as its arrays.",
    ),
    PredictionQuestion(
        "01-lazy",
        "A new kernel is launched many times. Divide the time of its first launch by the time of a later "
        "launch. How large is the result?",
        "The first launch took {times} times as long, because it compiles the kernel. Warm up before you "
        "measure a time.",
        choices=("less than 4 times", "4 to 30 times", "more than 30 times"),
        comparison="less than 4 times",
        misconception="Creating a RawKernel compiles it.",
    ),
    PredictionQuestion(
        "01-format",
        "A Blackwell GPU reports `120`. What does `format_capability` return for it?",
        "The function puts the dot after the first character.",
        choices=("12.0", "1.20", "120", "1.2"),
        comparison="12.0",
        misconception="The first digit is the major version.",
    ),
    PredictionQuestion(
        "01-naming",
        "“.0 is the data-centre flagship, .5 and .6 are consumer cards, .9 is for data-centre cards.” For "
        "how many of the {gpus} GPUs in `sold_for` is this rule wrong?",
        "A T4 (7.5) and an A10 (8.6) are data-centre cards, and an RTX 4090 (8.9) and an RTX 5090 (12.0) are "
        "desktop cards. The number shows what a chip can do, not where it is sold.",
        unit="GPUs",
        comparison=0,
        misconception="The minor version shows the market.",
    ),
    PredictionQuestion(
        "01-t4-v100",
        "A T4 has capability 7.5, and a V100 has 7.0. Divide the memory bandwidth of the T4 by that of the "
        "V100. What is the result?",
        "The published values are {t4} GB/s (GDDR6, a card of 70 W) for a T4, and {v100} GB/s (HBM2, a card "
        "of 300 W) for a V100.",
        unit="times",
        comparison=1.1,
        misconception="A GPU with a higher capability is faster.",
    ),
    PredictionQuestion(
        "01-1025",
        "A program launches one block of 1,025 threads. What happens?",
        "CUDA never makes a launch smaller to fit. It runs as written, or not at all.",
        choices=("1,025 threads run", "1,024 threads run", "an error, nothing runs"),
        comparison="1,024 threads run",
        misconception="The driver splits or shortens launches that are too large.",
    ),
    PredictionQuestion(
        "01-select",
        "Device 0 is current, and `z` is made inside `with Device(1):`. What is true after the `with` block?",
        "An array stays where it was made. The `with` block makes the earlier device current again.",
        choices=("z on 1, current 1", "z on 1, current 0", "z on 0, current 0"),
        comparison="z on 1, current 1",
        misconception="Selecting a device lasts until the next selection.",
    ),
    PredictionQuestion(
        "01-h200-a100",
        "`vector_add` has many elements. How many times as fast as an A100 (80 GB) can an H200 be, at best?",
        "One addition moves 3 × 4 bytes = 12 bytes, so memory is the limit, and the FP32 ratio of {fp32} "
        "does not matter.",
        unit="times",
        comparison=3.4,
        misconception="TFLOP/s decide which GPU is faster.",
    ),
    PredictionQuestion(
        "01-power",
        "An idle GPU suddenly works at full load. After how many seconds does the reported power show the "
        "full load?",
        "On most GPUs since Ampere, the driver reports an average over about a second, so a reading "
        "does not show the present instant, and short kernels are not visible in it.",
        unit="s",
        comparison=0.0,
        misconception="Sensors show the present instant.",
        tolerance=0.4,
    ),
)
