"""Predictions of notebook 01."""

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "01-context",
        "A process imports CuPy, counts the devices, makes a kernel object, and then `cupy.zeros(1)`: "
        "four bytes. "
        "How much memory does it hold on the device then, in MiB?",
        "The context alone, the process's state on the GPU, takes that much. It is made by the first "
        "call that "
        "needs it, and every process pays for its own: here {held} MiB.",
        choices=("about 1 MiB", "about 20 MiB", "about 500 MiB", "about 10,000 MiB"),
        comparison="about 1 MiB",
        misconception="A process uses as much device memory as its arrays.",
    ),
    PredictionQuestion(
        "01-lazy",
        "A new kernel is launched twice. How much longer does the first launch take?",
        "{times} times: the first launch compiles. Warm up before you time anything.",
        choices=("about the same", "some 10 times", "100 times or more"),
        comparison="about the same",
        misconception="Creating a RawKernel compiles it.",
    ),
    PredictionQuestion(
        "01-format",
        "A Blackwell GPU reports `120`. What does `format_capability` return for it?",
        "It splits after the first character.",
        choices=("12.0", "1.20", "120", "1.2"),
        comparison="12.0",
        misconception="The first digit is the major version.",
    ),
    PredictionQuestion(
        "01-naming",
        "“A minor version of 0 means a data-centre chip, 5 or 6 a consumer card.” In how many of the "
        "{gpus} lines "
        "below is that wrong?",
        "A T4 (7.5) and an A10 (8.6) stand in data centres, an RTX 5090 is 12.0. The number says what a "
        "chip can do, "
        "not where it is sold.",
        unit="lines",
        comparison=0,
        misconception="The minor version tells the market.",
    ),
    PredictionQuestion(
        "01-t4-v100",
        "A T4 has capability 7.5, a V100 has 7.0. How many times the V100's memory bandwidth does the "
        "T4 have?",
        "{t4} against {v100} GB/s: published are 70 W and GDDR6 for a T4, 300 W and HBM2 for a V100.",
        unit="times",
        comparison=1.1,
        misconception="A higher capability is a faster GPU.",
    ),
    PredictionQuestion(
        "01-1025",
        "A launch asks for one block of 1,025 threads. What happens?",
        "Nothing is trimmed to fit. A launch happens as written or not at all.",
        choices=("1,025 threads run", "1,024 threads run", "an error, nothing runs"),
        comparison="1,024 threads run",
        misconception="The driver splits or trims launches that are too large.",
    ),
    PredictionQuestion(
        "01-select",
        "Device 0 is current, and `z` is made inside `with Device(1):`. How do things stand after the block?",
        "An array stays where it was made; the block gives back the device that was current before.",
        choices=("z on 1, current 1", "z on 1, current 0", "z on 0, current 0"),
        comparison="z on 1, current 1",
        misconception="Selecting a device lasts until the next selection.",
    ),
    PredictionQuestion(
        "01-h200-a100",
        "vector_add of many elements: how many times faster is an H200 than an A100 (80 GB), at best?",
        "One addition for 3 × 4 bytes = 12 bytes is bound by memory, so the FP32 ratio of {fp32} does not "
        "matter.",
        unit="times",
        comparison=3.4,
        misconception="TFLOP/s decide.",
    ),
    PredictionQuestion(
        "01-power",
        "A GPU is idle, then works at full load from one moment to the next. How long does the reported "
        "power take "
        "to show the full load, in seconds?",
        "On this GPU the driver reports an average over about a second. A reading is not an instant: "
        "short kernels "
        "never show up in it.",
        unit="s",
        comparison=0.0,
        misconception="Sensors show what happens right now.",
        tolerance=0.4,
    ),
)
