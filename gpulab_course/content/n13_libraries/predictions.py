"""Predictions of notebook 13."""

from gpulab_course.content.n13_libraries.libraries import predictions as libraries
from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "13-count",
        "A counter in half precision (FP16) starts at 0, and 1 is added 10,000 times. At which number does "
        "it end?",
        "FP16 has 11 significant bits. From 2,048 on its numbers are 2 apart. 2,049 is in the middle "
        "between two of them and is rounded to the even one, 2,048.",
        choices=("2,048", "9,984, a little short", "10,000", "65,504, its largest number"),
        comparison="10,000",
        misconception="Integers far below the largest number are exact.",
    ),
    PredictionQuestion(
        "13-bf16",
        "BF16 has as many bits as FP16, and the range of FP32. At which number does its counter end?",
        "BF16 has more bits for the exponent than FP16, and so fewer for the fraction. It has 8 "
        "significant bits, so its counter stops at 2 to the 8th.",
        choices=("256", "2,048, too", "4,096"),
        comparison="2,048, too",
        misconception="The same number of bits means the same accuracy.",
    ),
    PredictionQuestion(
        "13-tenth",
        "In how many of the seven formats is 0.1 exact?",
        "A float is an integer times a power of two. 0.1 is not, with any number of bits.",
        choices=("none", "FP64 alone", "FP64 and FP32"),
        comparison="FP64 alone",
        misconception="Rounding is a fault of narrow formats.",
    ),
    PredictionQuestion(
        "13-toolarge",
        "The largest number of E4M3 is 448. CUDA's `__nv_cvt_float_to_fp8` has a mode with saturation "
        "(`__NV_SATFINITE`) and one without (`__NV_NOSAT`). What does 1,000 become without saturation?",
        "E4M3 uses the bits of ∞ for numbers, so only NaN is left. With saturation 1,000 becomes 448.",
        choices=("448", "∞", "NaN"),
        comparison="∞",
        misconception="Every float format has infinities.",
    ),
    PredictionQuestion(
        "13-walk",
        "You add n random numbers from 0 to 1 in FP32, and each addition is rounded. With 100 times as many "
        "numbers, how many times as large is the typical error, as a share of the sum?",
        "Errors have both signs and largely cancel, like the steps of a random walk. They grow about as the "
        "root of n.",
        choices=("as large as before", "about 10 times", "100 times"),
        comparison="100 times",
        misconception="Each addition adds its worst error.",
    ),
    PredictionQuestion(
        "13-tf32",
        "A matrix multiplication takes and returns FP32 numbers, and computes in TF32 on tensor cores. Which "
        "other format has about the same error?",
        "TF32 has FP16's fraction and FP32's exponent. So cuBLAS rounds the inputs as FP16 would, and only "
        "the range is wider.",
        choices=("FP32's", "FP16's", "BF16's"),
        comparison="FP32's",
        misconception="TF32 has 32 bits of accuracy.",
    ),
    PredictionQuestion(
        "13-switch",
        "A program imports CuPy, multiplies once, sets os.environ['CUPY_TF32'] = '1', and multiplies again. "
        "In which format is the second multiplication computed?",
        "CuPy reads the variable at its first multiplication and keeps this value.",
        choices=("TF32", "FP32"),
        comparison="TF32",
        misconception="An environment variable takes effect whenever it is set.",
    ),
    PredictionQuestion(
        "13-underflow",
        "Gradients are often as small as 2⁻²⁴ to 2⁻³⁰. How many of 100,000 random gradients of "
        "about 2⁻²⁷ become 0 in FP16?",
        "The smallest positive FP16 number is 2⁻²⁴. A number that is nearer to 0 than to it becomes 0. A "
        "scaled loss makes all gradients larger.",
        choices=("hardly any", "about half", "nearly all"),
        comparison="hardly any",
        misconception="Rounding changes a number a little, and never loses it.",
    ),
    PredictionQuestion(
        "13-blockmax",
        "The largest number of a block is 7.5, and the block's scale in MXFP4 is 1. Which number is stored "
        "for 7.5?",
        "The scale is a power of two. FP4's largest number is 6, so with a scale of 1 all numbers above 6 "
        "become 6. With a scale of 2, many small numbers would become 0.",
        choices=("6", "7.5", "8"),
        comparison="7.5",
        misconception="A scale makes the largest number of its block exact.",
    ),
    *libraries.PREDICTIONS,
)
