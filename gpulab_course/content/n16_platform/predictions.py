"""Predictions of notebook 16."""

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "16-old",
        "PTX for compute_75, the T4's, is all that a program carries. On how many of the seven GPUs of the "
        "table does it run?",
        "PTX is compiled for the device when it is loaded, and every later device takes it.",
        choices=("on 1", "on 2 to 4", "on all 7"),
        comparison="on 1",
        misconception="Code compiled for one GPU runs on that one.",
    ),
    PredictionQuestion(
        "16-minor",
        "Machine code for sm_86, the RTX 3090's. Does the A100 (8.0), which is of the same "
        "generation, run "
        "it?",
        "Machine code runs on its own and later minor versions of the same major one: upwards, never back.",
        choices=("yes", "no"),
        comparison="yes",
        misconception="All GPUs of one generation run each other's machine code.",
    ),
    PredictionQuestion(
        "16-own",
        "PTX for compute_90 runs on the B200. Does PTX for compute_90a?",
        "The a means: with features of this very device, such as warp-group products, which later devices "
        "need not have.",
        choices=("yes", "no"),
        comparison="yes",
        misconception="PTX runs on every later GPU, whatever stands behind the number.",
    ),
    PredictionQuestion(
        "16-newest",
        'A build script knows archs = ["sm_75", "sm_90", "sm_100"] and compiles for max(archs) alone. Which '
        "GPU runs the result?",
        "max(archs) is sm_90: strings are compared character by character, and 9 comes after 1.",
        choices=("the T4", "the H200", "the B200"),
        comparison="the B200",
        misconception="Names of architectures sort like numbers.",
    ),
    PredictionQuestion(
        "16-back",
        "cp.asnumpy(x) brings an array to the host. Which of these does it not need?",
        "A copy engine moves the bytes; no SM takes part, so no kernel runs.",
        choices=("a copy", "a kernel", "a wait"),
        comparison="a wait",
        misconception="Copies return before they are done, as launches do.",
    ),
    PredictionQuestion(
        "16-late",
        "CUPY_GPU_MEMORY_LIMIT is set in os.environ after the first array was made. What limit does the pool "
        "have then?",
        "It is read once, when the pool is made; nobody looks again.",
        choices=("the new one", "none"),
        comparison="the new one",
        misconception="Environment variables are looked up whenever they matter.",
    ),
    PredictionQuestion(
        "16-cache",
        "A model has {layers} layers with {heads} query heads and {kv} key-value heads of {width} numbers, "
        "in FP16. How many MiB of keys and values does it keep for {tokens} tokens?",
        "Keys and values, for each layer and key-value head: query heads share them and keep nothing.",
        unit="MiB",
        comparison="{all_heads}",
        misconception="Each query head keeps keys and values of its own.",
        tolerance=0.05,
    ),
    PredictionQuestion(
        "16-decode",
        "That model writes one token at a time, for one reader. What sets the pace on an H200?",
        "Each weight is read for two operations; the GPU could do hundreds in the time that reading takes.",
        choices=("FP16 operations", "reading the weights", "reading the keys and values"),
        comparison="FP16 operations",
        misconception="A GPU with more TFLOP/s writes tokens faster.",
    ),
)
