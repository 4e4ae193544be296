"""Predictions of notebook 16."""

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "16-old",
        "A program contains only PTX for compute_75, the capability of the T4. The matrix below has seven "
        "GPUs: the T4 and six later ones. On how many of them does the program run?",
        "The driver compiles PTX for the GPU when it loads the program. This works on every later GPU.",
        choices=("on 1", "on 2 to 4", "on all 7"),
        comparison="on 1",
        misconception="Code compiled for one GPU runs on that one.",
    ),
    PredictionQuestion(
        "16-minor",
        "A program contains only machine code for sm_86, the capability of the RTX 3090. Does it run on the "
        "A100 (8.0), which has the same major version?",
        "Machine code runs on its own minor version and on later ones of the same major version, but not on "
        "earlier ones.",
        choices=("yes", "no"),
        comparison="yes",
        misconception="All GPUs of one generation run each other's machine code.",
    ),
    PredictionQuestion(
        "16-own",
        "PTX for compute_90 runs on the B200. Does PTX for compute_90a run on the B200 as well?",
        "The letter a gives access to features of this capability, such as the wgmma instructions of "
        "Hopper. Later GPUs do not always have them, so the driver refuses such PTX on all other "
        "capabilities.",
        choices=("yes", "no"),
        comparison="yes",
        misconception="PTX runs on every later GPU, whatever letter follows the number.",
    ),
    PredictionQuestion(
        "16-newest",
        'A build script has a list, archs = ["sm_75", "sm_90", "sm_100"], and compiles only for max(archs). '
        "Which GPU runs the result?",
        "max(archs) is sm_90: strings are compared character by character, and 9 comes after 1.",
        choices=("the T4", "the H200", "the B200"),
        comparison="the B200",
        misconception="Names of architectures sort like numbers.",
    ),
    PredictionQuestion(
        "16-back",
        "cp.asnumpy(x) brings an array to the host. Which of these does it not need?",
        "A copy engine moves the bytes. No SM takes part, so no kernel runs.",
        choices=("a copy", "a kernel", "a wait"),
        comparison="a wait",
        misconception="Copies return before they are done, as kernel launches do.",
    ),
    PredictionQuestion(
        "16-late",
        "A program sets CUPY_GPU_MEMORY_LIMIT in os.environ after it has made its first array. Which limit "
        "does the pool have then?",
        "CuPy reads the variable once, when it makes the pool.",
        choices=("the new one", "none"),
        comparison="the new one",
        misconception="A program reads an environment variable each time it needs the value.",
    ),
    PredictionQuestion(
        "16-cache",
        "A model has {layers} layers with {heads} query heads and {kv} key-value heads of {width} numbers, "
        "in FP16. How many MiB of keys and values does it keep for {tokens} tokens?",
        "The model keeps keys and values for each layer and each key-value head. Query heads share them and "
        "keep nothing.",
        unit="MiB",
        comparison="{all_heads}",
        misconception="Each query head has separate keys and values.",
        tolerance=0.05,
    ),
    PredictionQuestion(
        "16-decode",
        "This model writes one token at a time, for one user. What limits its speed on an H200?",
        "For each weight that it reads, the GPU does two operations. In the time of the read it could do "
        "hundreds.",
        choices=("FP16 operations", "reading the weights", "reading the keys and values"),
        comparison="FP16 operations",
        misconception="A GPU with more TFLOP/s writes tokens faster.",
    ),
)
