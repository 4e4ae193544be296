"""Exercises of notebook 13 about precision; the exercises about libraries are in the folder ``libraries``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.analysis.formats import BF16, FP32, TF32
from gpulab.processes.errors import short_repr
from gpulab_course.content.n13_libraries.block_scales import judge_blocks
from gpulab_course.content.n13_libraries.libraries import exercises as libraries
from gpulab_course.teach.judge import (
    Advice,
    Answer,
    Case,
    DataGenerator,
    ExpectedFloats,
    KernelExercise,
    MeasuredLaunch,
    Mistake,
    NotYet,
    PythonExercise,
    SpecialInput,
    advice,
    as_float,
    draw,
    is_number,
)
from gpulab_course.teach.judge.python.functions import must_be_a_function
from virtualgpu.records import Dim3

SingleArray = npt.NDArray[np.float32]
HalfArray = npt.NDArray[np.float16]

# 13-round

# NaN of either sign, with fractions in the lower bits, in the upper ones, or in both.
_NAN_BITS = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0xFF800001, 0x7F80FFFF, 0xFFC00000], np.uint32)


def make_to_bf16_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that rounds floats to BF16. Many of these floats are halfway between
    two BF16 numbers or round to infinity.
    """
    x = random_data.floats(size, is_only_copied=True)
    bits = x.view(np.uint32)
    if random_data.kind in (draw.RANDOM_VALUES, draw.EXTREME_VALUES):
        word_kinds = random_data.rng.integers(0, 8, size)
        tie_bits = np.array([0x8000, 0x7FFF, 0x8001, 0xFFFF, 0, 1])
        tie_words = (bits & np.uint32(0xFFFF0000)) | tie_bits[np.minimum(word_kinds, 5)].astype(np.uint32)
        bits = np.where(word_kinds < 6, tie_words, bits)
        edge_words = random_data.rng.choice(
            np.array([0x7F7F7FFF, 0x7F7F8000, 0xFF7FC000, 0x007F8000, 0x00008000], np.uint32), size
        )
        bits = np.where(random_data.rng.random(size) < 0.05, edge_words, bits)
    if random_data.kind == draw.NAN_VALUES:
        nan_words = random_data.rng.choice(_NAN_BITS, size)
        bits = np.where(np.isnan(x), nan_words, bits)
    return _make_rounding_case(random_data, bits.view(np.float32), block)


def make_bf16_edges_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case with the smallest and largest floats of each kind and sign in random order."""
    upper_halves = np.array(
        [0, 1, 0x7F, 0x80, 0x3F80, 0x3F81, 0x7F7E, 0x7F7F, 0x7F80, 0x7F81, 0x7FBF, 0x7FC0, 0x7FFF]
    )
    lower_halves = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xC000, 0xFFFF])
    bits = (upper_halves[:, None] << 16 | lower_halves).ravel()
    x = random_data.rng.permutation(np.r_[bits, bits | 1 << 31]).astype(np.uint32).view(np.float32)
    return _make_rounding_case(random_data, x, block)


def _make_rounding_case(random_data: DataGenerator, x: SingleArray, block: Dim3) -> Case:
    """Return the test launch with these numbers, whose results are the nearest BF16 values."""
    size = x.size
    grid = int(random_data.rng.integers(1, draw.count_blocks(size, block[0]) + 2))
    expected = BF16.round_all(x).astype(np.float32)
    return Case(grid, {"x": x, "n": size}, {"y": ExpectedFloats(expected, 0.0, ulps=0, zero_bit_mask=0xFFFF)})


def _has_only_low_bits(mistake: Mistake) -> bool:
    """Return whether the only mistake is that a NaN has nonzero bits that BF16 does not have."""
    if mistake.actual_values is None or (mistake.wrong_elements & ~np.isnan(mistake["x"])).any():
        return False
    return bool((np.asarray(mistake.actual_values).view(np.uint32) & 0xFFFF)[np.isnan(mistake["x"])].any())


def _is_rounded_by(
    round_bits: Callable[[npt.NDArray[np.uint32]], npt.NDArray[Any]],
) -> Callable[[Mistake], bool]:
    """Return a matcher for finite numbers that were rounded by another rule."""

    def is_match(mistake: Mistake) -> bool:
        if mistake.actual_values is None or not mistake.wrong_elements[np.isfinite(mistake["x"])].any():
            return False
        bits = mistake["x"].view(np.uint32)
        is_finite = np.isfinite(mistake["x"])
        rounded_bits = (round_bits(bits.astype(np.uint64)) & 0xFFFF0000).astype(np.uint32)
        return bool((rounded_bits == np.asarray(mistake.actual_values).view(np.uint32))[is_finite].all())

    return is_match


def _is_tiny(x: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return a bool array that marks numbers that are subnormal or 0."""
    return np.asarray(np.abs(x) < np.finfo(np.float32).smallest_normal)


def _is_only_selected_wrong(
    mistake: Mistake, select_elements: Callable[[npt.NDArray[Any]], npt.NDArray[np.bool_]]
) -> bool:
    """Return whether all wrong results belong to inputs that `select_elements` marks."""
    if mistake.actual_values is None or mistake.expected_values is None:
        return False
    result = np.asarray(mistake.actual_values)
    expected = np.asarray(mistake.expected_values)
    is_wrong = mistake.wrong_elements | (np.signbit(result) != np.signbit(expected)) & ~np.isnan(expected)
    return bool(is_wrong.any()) and bool(select_elements(mistake["x"])[is_wrong].all())


# 13-halfsum

HALF_UNIT_EXPONENT = 24  # every half-precision value is an integer multiple of 2**-24


def compute_exact_sum(x: HalfArray) -> float:
    """Return the exact sum of half-precision values, rounded once to FP32."""
    if not np.isfinite(x).all():
        with np.errstate(invalid="ignore"):
            return float(x.astype(np.float64).sum())
    sum_in_units = (
        int(np.ldexp(x.astype(np.float64), HALF_UNIT_EXPONENT).astype(np.int64).sum()) if x.size else 0
    )
    return FP32.round(Fraction(sum_in_units, 1 << HALF_UNIT_EXPONENT))


def make_halves_with_sum(sum_units: int) -> HalfArray:
    """Return half-precision values in descending order, whose sum is `sum_units` times 2**-24."""
    largest_units = 65504 << HALF_UNIT_EXPONENT
    largest_count, remaining_units = divmod(abs(sum_units), largest_units)
    values = [65504.0] * largest_count
    while remaining_units:
        bit_shift = max(0, remaining_units.bit_length() - 11)  # a half has 11 bits
        values.append(math.ldexp(remaining_units >> bit_shift, bit_shift - HALF_UNIT_EXPONENT))
        remaining_units -= remaining_units >> bit_shift << bit_shift
    return np.array(values, np.float16) * np.float16(math.copysign(1, sum_units))


def _draw_midpoint_halves(
    rng: np.random.Generator, offset_units: int, sign: int, parity: int = 0
) -> HalfArray:
    """Return half-precision values whose sum is `offset_units` units from the midpoint of two FP32 numbers.

    The lower of the two numbers is even, or odd if `parity` is 1.
    """
    # Beyond 2**54 the spacing is 4 in FP64 and 2**31 in FP32.
    lower_significand = 2 * int(rng.integers(1 << 22, (1 << 23) - 1)) + parity
    return rng.permutation(
        make_halves_with_sum(sign * ((lower_significand << 31) + (1 << 30) + offset_units))
    )


def _draw_sum_cases(rng: np.random.Generator) -> list[tuple[str, HalfArray, str]]:
    """Draw inputs for sums: a description, the values, and the feedback for a wrong sum."""
    value_count = 100_000 - 2 * int(rng.integers(0, 500))
    one_count = int(rng.integers(50_000, 65_000)) | 1
    tiny_values = np.full(value_count, 2.0**-HALF_UNIT_EXPONENT, np.float16)
    large_values = np.full(value_count // 3, 65504, np.float16)
    largest_values = np.full(100_000, 65504, np.float16)
    # An odd number of units next to 2**31: the sum needs more bits than a double has, in any order.
    small_value = np.float16((2 * int(rng.integers(0, 500)) + 1) * 2.0**-HALF_UNIT_EXPONENT)
    cancelling_values = np.concatenate([large_values, [small_value], -large_values])
    mixed_values = (rng.standard_normal(value_count) * 2.0 ** rng.integers(-20, 12, value_count)).astype(
        np.float16
    )
    few_values = rng.standard_normal(int(rng.integers(2, 40))).astype(np.float16)
    width_lesson = "The accumulator needs more bits than the numbers have."
    order_lesson = (
        "A float forgets a small number next to a large sum, and the order decides which numbers. Every "
        "FP16 number is an integer multiple of 2**-24, and integers add up without rounding."
    )
    rounding_lesson = (
        "The sum was rounded to FP64 first, and then to FP32. An np.int64 becomes FP32 in one step, "
        "units.astype(np.float32), and a division by a power of two does not round."
    )
    return [
        (
            f"{one_count:,} ones",
            np.ones(one_count, np.float16),
            f"FP16 can neither represent 2,049 nor hold this sum. {width_lesson}",
        ),
        (
            f"{len(large_values):,} times 65,504",
            large_values,
            (
                "The sum is too large for FP16, and FP32 cannot add it up exactly: do not clamp it, "
                "and round once."
            ),
        ),
        (
            f"{value_count:,} times 2**-24 after 1",
            np.concatenate([[np.float16(1)], tiny_values]).astype(np.float16),
            f"In a narrow sum, each of them is lost next to 1. {width_lesson}",
        ),
        ("a few FP16 values", few_values, "Add all of them, and round once, at the end."),
        ("no values", few_values[:0], "The sum of no values is 0."),
        (f"{value_count:,} FP16 values of all sizes", mixed_values, order_lesson),
        ("the same values in reverse order", mixed_values[::-1].copy(), order_lesson),
        (
            "large values, a small one, and the large ones with the other sign",
            cancelling_values,
            order_lesson,
        ),
        ("the same values in another order", rng.permutation(cancelling_values), order_lesson),
        (
            "FP16 values with an infinity",
            np.append(few_values, np.float16(np.inf)),
            ("An infinity among the values is the sum."),
        ),
        (
            "FP16 values with −∞",
            np.append(np.float16(-np.inf), few_values),
            "An infinity among the values is the sum.",
        ),
        ("∞ and −∞", np.array([np.inf, 1, -np.inf], np.float16), "∞ − ∞ is NaN."),
        (
            "FP16 values with a NaN",
            np.append(few_values, np.float16(np.nan)),
            "With a NaN among them, the sum is NaN.",
        ),
        (
            "FP16 values with ∞ and a NaN",
            rng.permutation(np.append(few_values, np.array([np.inf, np.nan], np.float16))),
            "With a NaN among them, the sum is NaN.",
        ),
        (
            "FP16 values whose sum is a little above the middle of two FP32 numbers",
            _draw_midpoint_halves(rng, 1, 1),
            rounding_lesson,
        ),
        (
            "FP16 values whose sum is a little below the middle of two FP32 numbers",
            _draw_midpoint_halves(rng, -1, 1, 1),
            rounding_lesson,
        ),
        (
            "FP16 values whose negative sum is next to the middle of two FP32 numbers",
            _draw_midpoint_halves(rng, 1, -1),
            rounding_lesson,
        ),
        *(
            (
                f"FP16 values whose sum is exactly in the middle of two FP32 numbers, {description}",
                _draw_midpoint_halves(rng, 0, sign, parity),
                "Exactly in the middle of two numbers, IEEE takes the one whose last bit is 0.",
            )
            for sign, parity, description in (
                (1, 0, "the even one is below it"),
                (1, 1, "the even one is above it"),
                (-1, 0, "negative"),
                (-1, 1, "negative"),
            )
        ),
        (
            "100,000 times the largest value",
            largest_values,
            f"The sum is larger than the largest FP16 number. {width_lesson}",
        ),
        (
            "100,000 times the lowest value",
            -largest_values,
            f"The sum is larger than the largest FP16 number. {width_lesson}",
        ),
        ("a single element", few_values[:1], "Add all of them, and round once, at the end."),
        ("a single element, next to zero", np.array([-(2.0**-HALF_UNIT_EXPONENT)], np.float16), order_lesson),
    ]


def judge_halfsum(answer: Answer) -> str:
    """Judge the learner's ``half_sum(x)``, which sums half-precision values with one rounding to FP32."""
    must_be_a_function("half_sum", answer.is_function, answer.kind)
    for name, x, lesson in _draw_sum_cases(answer.rng):
        result = answer.call_as(f"half_sum(x) of {name}", x)
        if result is None:
            raise NotYet("half_sum returns nothing; replace the TODO and end with a return.")
        if not is_number(result):
            raise NotYet(f"half_sum(x) of {name} returns {short_repr(result)}. Return one number.")
        expected = compute_exact_sum(x)
        with np.errstate(over="ignore"):
            value = float(np.float32(as_float(result)))
        if value != expected and not (math.isnan(value) and math.isnan(expected)):
            raise NotYet(
                f"half_sum(x) of {name} returns {value:.9g}; the sum, rounded to FP32, is {expected:.9g}. "
                f"{lesson}"
            )
        if as_float(result) != value and not math.isnan(value):
            raise NotYet(
                f"half_sum(x) of {name} returns {as_float(result):.17g}, which is not an "
                "FP32 number. Round the sum with np.float32(…)."
            )
    return "every order gives the same sum, to its last bit, because it was rounded only once."


# 13-tf32x3

MAX_PRODUCT_CALLS = 3
_TF32_MASK = np.uint32(0xFFFFE000)


def on_tensor_cores(x: Any, y: Any) -> SingleArray:
    """Multiply FP32 matrices like TF32 tensor cores, which ignore the low 13 bits of each element."""
    truncated_matrices = [
        (np.ascontiguousarray(m, np.float32).view(np.uint32) & _TF32_MASK).view(np.float32) for m in (x, y)
    ]
    with np.errstate(over="ignore", invalid="ignore"):
        return (truncated_matrices[0].astype(np.float64) @ truncated_matrices[1].astype(np.float64)).astype(
            np.float32
        )


def three_products(
    a: SingleArray, b: SingleArray, product: Callable[[Any, Any], SingleArray] = on_tensor_cores
) -> SingleArray:
    """Multiply FP32 matrices with three products of TF32 matrices (reference solution).

    The small products are added first.
    """

    def split_parts(x: SingleArray) -> tuple[SingleArray, SingleArray]:
        high_part = TF32.round_all(x).astype(np.float32)
        return high_part, TF32.round_all(x - high_part).astype(np.float32)

    large_a, small_a = split_parts(a)
    large_b, small_b = split_parts(b)
    result: SingleArray = product(small_a, large_b) + product(large_a, small_b) + product(large_a, large_b)
    return result


def _run_three(answer: Any, send_request: Callable[..., Any], a: SingleArray, b: SingleArray) -> Any:
    """Run the answer in its own process; return its result, and whether a and b are still unchanged."""
    copies = a.copy(), b.copy()
    result = answer(*copies, lambda x, y: send_request(np.asarray(x), np.asarray(y)))
    return [result, np.array_equal(copies[0], a), np.array_equal(copies[1], b)]


def _is_sum_of_products(result: SingleArray, products: Sequence[SingleArray], magnitude: Any) -> bool:
    """Return whether a result is a linear combination of the products or of their blocks, up to rounding."""
    m, n = result.shape
    candidate_terms = []
    candidate_products = [
        candidate_product for product in products for candidate_product in (product, product.T)
    ]
    for candidate_product in candidate_products:
        rows, columns = candidate_product.shape
        if rows and columns and rows % m == columns % n == 0:
            blocks = candidate_product.reshape(rows // m, m, columns // n, n).transpose(0, 2, 1, 3)
            candidate_terms += list(blocks.reshape(-1, m * n).astype(np.float64))
    if not candidate_terms:
        return False
    inverse_magnitudes = 1 / magnitude.ravel()
    basis_terms = np.array(candidate_terms[:12])
    coefficients = np.linalg.lstsq(
        (basis_terms * inverse_magnitudes).T, result.ravel() * inverse_magnitudes, rcond=None
    )[0]
    return bool(
        (np.abs(coefficients @ basis_terms - result.ravel()) * inverse_magnitudes <= 8 * FP32.roundoff).all()
    )


def measure_error_in_u(result: Any, a: SingleArray, b: SingleArray) -> float:
    """Return the RMS error of a matrix product relative to |a| |b|, in units of FP32's unit roundoff u."""
    a = a.astype(np.float64)
    b = b.astype(np.float64)
    relative_error = (result.astype(np.float64) - a @ b) / (np.abs(a) @ np.abs(b))
    return float(np.sqrt(np.mean(relative_error**2)) / FP32.roundoff)


def judge_tf32x3(answer: Answer) -> str:
    """Judge the learner's ``three(a, b, product)``, which reaches the accuracy of FP32 with three TF32
    products.
    """
    must_be_a_function("three", answer.is_function, answer.kind)
    rng = answer.rng
    m = 0
    n = 0
    k = 0
    for number_kind in ("random", "positive", "of many sizes", "large and small"):
        # This kind keeps the sizes, so that results that were stored would have the right shape.
        if number_kind != "of many sizes":
            m, n = (int(extent) for extent in rng.permutation(np.arange(9, 40))[:2])
            k = 12 * int(rng.integers(9, 40))
        factor_matrices = rng.standard_normal((m, k)), rng.standard_normal((k, n))
        if number_kind == "positive":
            factor_matrices = np.abs(factor_matrices[0]), np.abs(factor_matrices[1])
        if number_kind == "of many sizes":
            factor_matrices = (
                factor_matrices[0] * 2.0 ** rng.integers(-24, 24, (m, k)),
                factor_matrices[1] * 2.0 ** rng.integers(-24, 24, (k, n)),
            )
        if number_kind == "large and small":
            factor_matrices = factor_matrices[0] * 2.0**60, factor_matrices[1] * 2.0**-50
        a = factor_matrices[0].astype(np.float32)
        b = factor_matrices[1].astype(np.float32)
        call_text = f"three(a, b, product) for {number_kind} numbers, {m} x {k} times {k} x {n}"
        products: list[SingleArray] = []

        def multiply_in_tf32(x: Any, y: Any, products: list[SingleArray] = products) -> SingleArray:
            if not x.ndim == y.ndim == 2 or x.shape[1] != y.shape[0]:
                raise ValueError(
                    f"product(x, y) needs as many columns in x as rows in y, not {x.shape} and {y.shape}."
                )
            products.append(on_tensor_cores(x, y))
            return products[-1]

        result, *inputs_unchanged = answer.ask(_run_three, a, b, shown=call_text, back=multiply_in_tf32)
        if result is None:
            raise NotYet("three returns nothing; replace the TODO and end with a return.")
        if not isinstance(result, np.ndarray) or result.shape != (m, n):
            raise NotYet(
                f"{call_text} returns {short_repr(result)}. Return the product, an array of {m} x {n}."
            )
        if not all(inputs_unchanged):
            raise NotYet(
                f"{call_text} changes {'ab'[inputs_unchanged.index(False)]}, which belongs to its caller."
            )
        if not products:
            raise NotYet(
                f"{call_text} never calls product. All multiplications must be done by the tensor cores."
            )
        if len(products) > MAX_PRODUCT_CALLS:
            raise NotYet(
                f"{call_text} calls product {len(products)} times, but {MAX_PRODUCT_CALLS} calls are enough. "
                "The product of the two remainders is too small to change the result."
            )
        if result.dtype != np.float32:
            raise NotYet(
                f"{call_text} returns {result.dtype}. Use FP32 in all steps, because most GPUs compute FP64 "
                "slowly."
            )
        magnitude = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
        if np.isfinite(result).all() and not _is_sum_of_products(result, products, magnitude):
            raise NotYet(
                f"{call_text} does not return a sum of matrices that product returned. All multiplications "
                "must be done by the tensor cores."
            )
        result_error = measure_error_in_u(result, a, b)
        reference_error = measure_error_in_u(three_products(a, b), a, b)
        # The order of the three products matters where all are positive, truncation where signs differ.
        if not result_error <= (1.6 if number_kind == "positive" else 1.28) * reference_error:
            raise NotYet(
                f"{call_text} has an RMS error of {result_error:.2g} u (u of FP32); "
                f"{reference_error:.2g} u are possible. {_explain_wrong_product(result, a, b)}"
            )
    return "three TF32 multiplications are as accurate as one in FP32."


def _explain_wrong_product(result: SingleArray, a: SingleArray, b: SingleArray) -> str:
    """Return the feedback for a product that is not accurate enough."""
    magnitude = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)

    def is_match(*results: SingleArray) -> bool:
        return any(
            bool(np.all(np.abs(result - candidate_result) <= 8 * FP32.roundoff * magnitude))
            for candidate_result in results
        )

    large_a, large_b = (TF32.round_all(x).astype(np.float32) for x in (a, b))
    single_product = on_tensor_cores(large_a, large_b)
    if is_match(single_product, on_tensor_cores(a, b)):
        return "This is the error of a single product: the remainders of a and b must be multiplied as well."
    if is_match(
        single_product + on_tensor_cores(a - large_a, large_b),
        single_product + on_tensor_cores(large_a, b - large_b),
    ):
        return "The lower part of one matrix is missing: both have one."
    if measure_error_in_u(result, a, b) < 40:
        return (
            "This is nearly right: round to TF32, do not cut. After cutting, all remainders have the same "
            "sign, and more bits than product uses."
        )
    return "Add three products: small times big, big times small, and big times big."


# 13-lossscale


def _run_training(
    answer: Any, weights: SingleArray, gradient_steps: Sequence[Any], scaler_state: dict[str, Any]
) -> list[Any]:
    """Run training steps in the answer's process; return the weights and the scale after each step."""
    step_results: list[Any] = []
    current_weights = weights.copy()
    for gradients in gradient_steps:
        requested_scales: list[float] = []

        def make_gradients(
            scale: float, gradients: Any = gradients, scales: list[float] = requested_scales
        ) -> HalfArray:
            scales.append(float(scale))
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                return (np.asarray(gradients, np.float64) * scale).astype(np.float16)

        original_weights = current_weights
        original_copy = current_weights.copy()
        result = answer(current_weights, make_gradients, scaler_state)
        if isinstance(result, np.ndarray):
            current_weights = result
        is_unchanged = np.array_equal(original_weights, original_copy)
        step_results.append(
            [
                requested_scales,
                original_copy,
                current_weights.copy(),
                dict(scaler_state),
                result is None,
                is_unchanged,
            ]
        )
    return step_results


def scaled_step(weights: Any, backward: Any, state: dict[str, Any]) -> Any:
    """Make one training step with a dynamic loss scale (reference solution)."""
    gradients = backward(state["scale"]).astype(np.float32) / np.float32(state["scale"])
    if not np.isfinite(gradients).all():
        state["scale"] /= 2
        state["good"] = 0
        return weights
    state["good"] += 1
    if state["good"] == state["interval"]:
        state["scale"] *= 2
        state["good"] = 0
    return weights - np.float32(state["rate"]) * gradients


def judge_lossscale(answer: Answer) -> str:
    """Judge the learner's ``scaled_step(weights, backward, state)``, which makes a training step with FP16
    gradients.
    """
    must_be_a_function("scaled_step", answer.is_function, answer.kind)
    rng = answer.rng
    # Scales below 1, far beyond 2**24, and in between; intervals of 1 and more.
    for scale_power, growth_interval in (
        (-7, 1),
        (31, 2),
        (10, int(rng.integers(3, 6))),
        (14, int(rng.integers(2, 6))),
    ):
        n = int(rng.integers(4, 30))
        learning_rate = float(2.0 ** rng.integers(-9, -3)) * 0.9
        # Weights as small as the changes, so that a slightly wrong step is detected.
        loss_scale = float(2.0 ** (scale_power + rng.integers(0, 3)))
        weights = (rng.standard_normal(n) * 2.0**-12 / loss_scale).astype(np.float32)
        scaler_state = {"scale": loss_scale, "good": 0, "interval": growth_interval, "rate": learning_rate}
        gradient_kinds: list[Any] = []
        bad_steps = {
            1: "bad",
            growth_interval + 2: "inf",
            growth_interval + 3: "nan",
            growth_interval + 4: "-inf",
        }
        # Good steps that look bad in half precision, or that count as good nevertheless.
        edge_step = 2 * growth_interval + 5
        edge_steps = {
            edge_step: "large",
            edge_step + 1: "largest",
            edge_step + 2: "zeros",
            edge_step + 3: "both",
        }
        for step_index in range(5 * growth_interval + 12):
            # Gradients from tiny ones to ones so large that the scale must be halved.
            gradients = rng.standard_normal(n) * 2.0 ** rng.integers(-12, 0, n) / loss_scale
            gradient_kind = bad_steps.get(step_index, "good")
            if step_index > edge_step and rng.random() < 0.2:
                gradient_kind = "bad"
            gradient_kind = edge_steps.get(step_index, gradient_kind)
            gradient_kinds.append((gradient_kind, gradients))
        gradient_steps = _draw_gradients(rng, gradient_kinds, dict(scaler_state))
        step_results = answer.ask(
            _run_training,
            weights,
            gradient_steps,
            dict(scaler_state),
            shown="scaled_step(weights, backward, state)",
        )
        _judge_training(step_results, gradient_steps, scaler_state)
    return "tiny gradients are kept, steps that overflow are skipped, and the scale adapts."


_BAD_GRADIENTS = {"inf": 1e30, "-inf": -1e30, "nan": np.nan}


def _draw_gradients(
    rng: np.random.Generator, gradient_kinds: Sequence[tuple[str, Any]], scaler_state: dict[str, Any]
) -> list[Any]:
    """Draw gradients of the named kinds, multiplied by the loss scale of their steps."""
    gradient_steps = []
    for gradient_kind, gradients in gradient_kinds:
        gradient_index = int(rng.integers(len(gradients)))
        gradient_count = len(gradients)
        if gradient_kind == "bad":
            gradient_kind = str(rng.choice(("inf", "-inf", "nan")))
        if gradient_kind == "both":
            gradients[:2] = np.inf, -np.inf
        elif gradient_kind == "large":  # each is finite, but their half-precision sum is not
            gradients[:] = rng.uniform(30_000, 60_000, gradient_count) / scaler_state["scale"]
        elif gradient_kind == "largest":  # the largest half-precision values of either sign
            gradients[[gradient_index, gradient_index - 1]] = (
                np.array([65504, -65504]) / scaler_state["scale"]
            )
        elif gradient_kind == "zeros":
            gradients[:] = 0
        elif gradient_kind != "good":
            gradients[gradient_index] = _BAD_GRADIENTS[gradient_kind]
        gradient_steps.append(gradients)
        with np.errstate(all="ignore"):
            half_gradients = (gradients * scaler_state["scale"]).astype(np.float16)
        scaled_step(
            np.zeros(gradient_count, np.float32),
            lambda _scale, half_gradients=half_gradients: half_gradients,
            scaler_state,
        )
    return gradient_steps


def _judge_training(step_results: Any, gradient_steps: Sequence[Any], scaler_state: dict[str, Any]) -> None:
    """Compare the weights and the scale after each training step with those of the reference."""
    expected_state = dict(scaler_state)
    for step_number, (gradients, step_result) in enumerate(zip(gradient_steps, step_results, strict=True), 1):
        scales, weights, result, new_state, is_result_none, is_unchanged = step_result
        step_text = f"Step {step_number} with scale {expected_state['scale']:,g}"
        if is_result_none:
            raise NotYet(
                "scaled_step returns nothing. Return the weights; in a skipped step, return the old ones."
            )
        if scales != [expected_state["scale"]]:
            if len(scales) == 1:
                raise NotYet(
                    f"{step_text} calls backward with {scales[0]:,g}. Call it with "
                    "state['scale'], by which the loss is multiplied."
                )
            raise NotYet(
                f"{step_text} calls backward {len(scales)} times, but it must call backward only once, "
                "because backward is the expensive part."
            )
        if not isinstance(result, np.ndarray) or result.shape != weights.shape:
            raise NotYet(f"{step_text} returns {short_repr(result)}. Return as many weights as before.")
        if result.dtype != np.float32:
            raise NotYet(f"{step_text} returns weights in {result.dtype}: the weights must stay in float32.")
        with np.errstate(all="ignore"):
            half_gradients = (np.asarray(gradients, np.float64) * expected_state["scale"]).astype(np.float16)
        scale = expected_state["scale"]
        good_step_count = expected_state["good"]
        expected_weights = scaled_step(
            weights, lambda _scale, half_gradients=half_gradients: half_gradients, expected_state
        )
        is_skipped = not np.isfinite(half_gradients).all()
        description = (
            f"{step_text}, with gradients that contain "
            f"{'NaN' if np.isnan(half_gradients).any() else 'an infinity'},"
            if is_skipped
            else step_text
        )
        tolerance = 4 * FP32.roundoff * (np.abs(weights) + np.abs(expected_weights))
        if not (np.abs(result - expected_weights) <= tolerance).all():
            raise NotYet(
                f"{description} "
                + _explain_wrong_weights(
                    is_skipped, half_gradients, weights, result, scale, scaler_state["rate"]
                )
            )
        if not is_unchanged:
            raise NotYet(f"{step_text} changes weights, which belongs to its caller. Return a new array.")
        if new_state.get("scale") != expected_state["scale"]:
            raise NotYet(
                f"{description} leaves the scale at {new_state.get('scale', 'nothing')}, not "
                f"{expected_state['scale']:,g}. "
                f"{_explain_wrong_scale(is_skipped, good_step_count, scaler_state['interval'])}"
            )
        if new_state.get("good") != expected_state["good"]:
            raise NotYet(
                f"{description} leaves state['good'] at {new_state.get('good', 'nothing')}, not "
                f"{expected_state['good']}: it counts the good steps since the scale last changed."
            )


def _explain_wrong_weights(
    is_skipped: bool,
    half_gradients: HalfArray,
    weights: SingleArray,
    result: SingleArray,
    scale: float,
    learning_rate: float,
) -> str:
    """Return the feedback for wrong weights."""
    if is_skipped:
        return (
            "changes weights. A gradient that is not finite makes them useless in all later steps, so "
            "skip this step."
        )
    unscaled_result = weights - np.float32(learning_rate) * half_gradients.astype(np.float32)
    if np.allclose(result, unscaled_result, rtol=1e-5, atol=0):
        return "uses gradients that are still scaled: divide by the scale before the step."
    if np.array_equal(result, weights):
        return "leaves the weights unchanged, with good gradients."
    return (
        "has other weights than weights - rate * gradients / scale, computed in float32. "
        "In FP16, tiny gradients would be lost."
    )


def _explain_wrong_scale(is_skipped: bool, good_step_count: int, growth_interval: int) -> str:
    """Return the feedback for a wrong loss scale."""
    if is_skipped:
        return "It was too large: halve it."
    if good_step_count + 1 == growth_interval:
        return "After `interval` good steps in a row the scale doubles; otherwise it could only shrink."
    return "It changes only after `interval` good steps in a row, or after an overflow."


_TIE_ADVICE = "A number exactly half-way becomes the even one: add 0x7FFF, and 1 more if bit 16 is set."

EXERCISES = (
    KernelExercise(
        "13-round",
        "Round to BF16",
        kernel="to_bf16",
        parameters="const float* x, float* y, int n",
        case=make_to_bf16_case,
        table=(
            SpecialInput("both ends and the middle of each kind of number", make_bf16_edges_case, (182,)),
        ),
        reference="to_bf16.cu",
        level="warm-up",
        forbids_double_writes=True,
        measured_launch=MeasuredLaunch(1 << 14, (256, 1, 1), max_instruction_factor=6.0),
        advice=(
            Advice(advice.is_out_of_bounds, "Guard the end: i < n."),
            Advice(advice.is_written_twice, "Each element must be written by only one thread."),
            Advice(
                _has_only_low_bits,
                "The lower 16 bits must be 0 in a NaN as well, because BF16 has only the upper ones.",
            ),
            Advice(
                lambda m: _is_only_selected_wrong(m, np.isnan),
                "NaN has to stay NaN: a carry must not change its sign, and its fraction must not become 0.",
            ),
            Advice(
                lambda m: _is_only_selected_wrong(m, np.isinf),
                "An infinity is not a NaN, and must stay unchanged.",
            ),
            Advice(
                lambda m: _is_only_selected_wrong(m, _is_tiny),
                "Subnormal numbers and zeros are rounded like all others, and keep their sign. Work on the "
                "bits: operations on floats can treat subnormal numbers as 0.",
            ),
            Advice(
                _is_rounded_by(lambda u: u), "This cuts off the lower 16 bits, which is rounding towards 0."
            ),
            Advice(_is_rounded_by(lambda u: u + 0x8000), f"Here, ties always go up. {_TIE_ADVICE}"),
            Advice(_is_rounded_by(lambda u: u + 0x7FFF), f"Here, ties always go down. {_TIE_ADVICE}"),
            Advice(
                _is_rounded_by(lambda u: u + 0x7FFF + (~u >> 16 & 1)),
                f"Here, ties go to the odd number. {_TIE_ADVICE}",
            ),
            Advice(
                lambda m: (
                    m.actual_values is not None and bool((np.abs(m["x"]) > 3.38e38)[m.wrong_elements].all())
                ),
                "A number above the middle between the largest BF16 number and 2**128 becomes ∞.",
            ),
            Advice(
                advice.is_partly_unwritten,
                "Some elements were never written: there can be fewer threads than elements.",
            ),
            Advice(
                lambda m: m.actual_values is not None,
                "BF16 is the upper 16 bits of a float: add to its bits so that a carry rounds up, then "
                "clear the lower 16.",
            ),
        ),
        praise="the result is the nearest BF16 number, ties to even, also for zeros, subnormal numbers, "
        "infinities and NaN.",
    ),
    PythonExercise("13-halfsum", "An exact sum of FP16 values", judge_halfsum),
    PythonExercise("13-tf32x3", "FP32 from three TF32 multiplications", judge_tf32x3),
    PythonExercise("13-lossscale", "A scale for the loss", judge_lossscale, level="stretch"),
    PythonExercise("13-blocks", "A scale for each block", judge_blocks),
    *libraries.EXERCISES,
)
