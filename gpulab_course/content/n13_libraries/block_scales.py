"""Scales for blocks of narrow numbers: exercise 13-blocks, and a picture of block scales.

Source of the exponents' rule: OCP Microscaling Formats (MX) Specification 1.0, 2023, section 6.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from gpulab.analysis.formats import E2M1
from gpulab.processes.errors import short_repr
from gpulab.views.parts.palette import find_hex
from gpulab_course.teach.judge import Answer, NotYet
from gpulab_course.teach.judge.python.functions import must_be_a_function
from gpulab_course.teach.picture import Picture

SingleArray = npt.NDArray[np.float32]
ExponentArray = npt.NDArray[np.int64]

BLOCK_ELEMENTS = 32
MIN_SCALE_EXPONENT, MAX_SCALE_EXPONENT = -127, 127  # exponents of E8M0
_MAX_FP4_EXPONENT = 2  # exponent of FP4's largest number, 6 = 1.5 * 2**2


def mxfp4(x: SingleArray) -> tuple[ExponentArray, npt.NDArray[np.float64]]:
    """Return the exponents of the blocks and the FP4 elements of an array in the MXFP4 format (reference
    solution).
    """
    blocks = x.astype(np.float64).reshape(-1, BLOCK_ELEMENTS)
    block_maxima = np.abs(blocks).max(axis=1)
    exponents = np.where(
        block_maxima > 0, np.frexp(block_maxima)[1] - 1 - _MAX_FP4_EXPONENT, MIN_SCALE_EXPONENT
    ).clip(MIN_SCALE_EXPONENT, MAX_SCALE_EXPONENT)
    return exponents, E2M1.round_all(np.ldexp(blocks, -exponents[:, None])).reshape(-1)


def _draw_blocks(rng: np.random.Generator) -> list[tuple[str, SingleArray, str]]:
    """Return the name, the numbers and the lesson of each test."""
    block_count = int(rng.integers(5, 12))
    normal_blocks = rng.standard_normal((block_count, BLOCK_ELEMENTS)).astype(np.float32)
    scaled_blocks = (normal_blocks * 2.0 ** rng.integers(-30, 30, (block_count, 1))).astype(np.float32)
    outlier_blocks = normal_blocks.copy()
    outlier_blocks[int(rng.integers(0, block_count)), int(rng.integers(0, BLOCK_ELEMENTS))] = -1000
    signed_blocks = np.abs(scaled_blocks)
    signed_blocks[np.arange(block_count), signed_blocks.argmax(axis=1)] *= -8
    zero_blocks = scaled_blocks.copy()
    zero_blocks[int(rng.integers(0, block_count))] = 0
    block_powers = np.float32(2.0) ** rng.choice(np.arange(-20, 21), block_count, replace=False).astype(
        np.float32
    )
    power_blocks = (normal_blocks / 64).clip(-0.5, 0.5) * block_powers[:, None]
    power_blocks[:, int(rng.integers(0, BLOCK_ELEMENTS))] = block_powers
    below_power_blocks = power_blocks.copy()
    below_power_blocks[np.abs(below_power_blocks) == block_powers[:, None]] = np.nextafter(
        block_powers, np.float32(0)
    )
    edge_blocks = np.clip(normal_blocks, -1.9, 1.9) * np.float32(2.0) ** rng.choice(
        [-140.0, -126.0, 126.0], (block_count, 1)
    )
    log_lesson = (
        "np.log2 of a float32 can be rounded up to the next integer. np.frexp returns the exponent exactly."
    )
    limit_lesson = "A scale in E8M0 has exponents from -127 to 127, and a block of zeros has -127."
    return [
        ("blocks of different sizes", scaled_blocks.reshape(-1), ""),
        ("random numbers", normal_blocks.reshape(-1), ""),
        ("random numbers and one outlier", outlier_blocks.reshape(-1), ""),
        ("blocks whose largest absolute value is negative", signed_blocks.reshape(-1), ""),
        ("blocks whose largest number is a power of two", power_blocks.reshape(-1), ""),
        (
            "blocks whose largest number is just below a power of two",
            below_power_blocks.reshape(-1),
            log_lesson,
        ),
        ("blocks of which one has only zeros", zero_blocks.reshape(-1), limit_lesson),
        ("very small and very large numbers", edge_blocks.astype(np.float32).reshape(-1), limit_lesson),
    ]


def _run_answer(answer: Any, x: SingleArray) -> list[Any]:
    """Run the answer in its own process; return its result, and whether x is still unchanged."""
    input_copy = x.copy()
    result = answer(input_copy)
    return [result, np.array_equal(input_copy, x)]


def judge_blocks(answer: Answer) -> str:
    """Judge the learner's ``mxfp4(x)``, which returns the FP4 elements and the exponents of blocks of 32
    numbers.
    """
    must_be_a_function("mxfp4", answer.is_function, answer.kind)
    for name, x, lesson in _draw_blocks(answer.rng):
        call_text = f"mxfp4 of {name}"
        result, is_unchanged = answer.ask(_run_answer, x, shown=call_text)
        if result is None:
            raise NotYet("mxfp4 returns nothing; replace the TODO and end with a return.")
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise NotYet(
                f"{call_text} returns {short_repr(result)}. Return two arrays: exponents, and elements."
            )
        if not is_unchanged:
            raise NotYet(f"{call_text} changes x, which belongs to its caller.")
        exponents, elements = (_convert_to_float64(result_part) for result_part in result)
        blocks = x.size // BLOCK_ELEMENTS
        if exponents.shape != (blocks,) or elements.shape != x.shape:
            raise NotYet(
                f"{call_text} with {x.size} numbers returns arrays of the shapes {exponents.shape} and "
                f"{elements.shape}. They should be ({blocks},) and {x.shape}: one exponent per block of "
                f"{BLOCK_ELEMENTS}, and one element per number."
            )
        expected_exponents, expected_elements = mxfp4(x)
        is_wrong = exponents != expected_exponents
        if is_wrong.any():
            block = int(np.argmax(is_wrong))
            block_maximum = float(np.abs(x[block * BLOCK_ELEMENTS : (block + 1) * BLOCK_ELEMENTS]).max())
            raise NotYet(
                f"{call_text}: the exponent of block {block} is {exponents[block]:.6g}, but it should be "
                f"{expected_exponents[block]}, because the largest absolute value of the block is "
                f"{block_maximum:.9g}. {_explain_wrong_exponent(x, exponents) or lesson}".rstrip()
            )
        is_wrong = ~(elements == expected_elements)
        if is_wrong.any():
            wrong_index = int(np.argmax(is_wrong))
            exponent = expected_exponents[wrong_index // BLOCK_ELEMENTS]
            raise NotYet(
                f"{call_text}: element {wrong_index} is {elements[wrong_index]:.6g}, but it should be "
                f"{expected_elements[wrong_index]:.6g}, because the number is "
                f"{float(x[wrong_index]):.6g} and the exponent of its block is {exponent}. "
                f"{_explain_wrong_element(x, elements)}"
            )
    return "an outlier, a block of zeros and the ends of the range affect only their own blocks."


def _convert_to_float64(values: Any) -> npt.NDArray[np.float64]:
    """Return a part of an answer as an array of float64, which is empty if it contains no numbers."""
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError):
        return np.empty((0, 0))


def _explain_wrong_exponent(x: SingleArray, exponents: npt.NDArray[np.float64]) -> str:
    """Return the feedback for exponents that follow another rule."""
    blocks = x.astype(np.float64).reshape(-1, BLOCK_ELEMENTS)
    magnitudes = np.abs(blocks)

    def is_match(
        maxima: Any, round_function: Callable[[Any], Any] = np.floor, top_exponent: int = _MAX_FP4_EXPONENT
    ) -> bool:
        with np.errstate(divide="ignore", invalid="ignore"):
            rule_exponents = np.broadcast_to(round_function(np.log2(maxima)) - top_exponent, exponents.shape)
            right_exponents = np.floor(np.log2(magnitudes.max(axis=1))) - _MAX_FP4_EXPONENT
        return bool((rule_exponents != right_exponents).any() and (exponents == rule_exponents).all())

    if is_match(magnitudes.max(axis=1), top_exponent=0):
        return "Subtract 2, the exponent of FP4's largest number, 6."
    if is_match(magnitudes.max()):
        return "This is one scale for all. Each block needs its own."
    if is_match(blocks.max(axis=1)):
        return "The largest absolute value counts, also if the number is negative."
    if any(
        is_match(magnitudes.max(axis=1), rounding_function) for rounding_function in (np.ceil, np.round)
    ) or is_match(magnitudes.max(axis=1) / 6, np.ceil, 0):
        return "The logarithm must be rounded down, and the rule does not divide by 6."
    if is_match(magnitudes.reshape(BLOCK_ELEMENTS, -1).max(axis=0)):
        return "A block consists of 32 neighbouring numbers."
    return ""


def _explain_wrong_element(x: SingleArray, elements: npt.NDArray[np.float64]) -> str:
    """Return the feedback for elements that follow another rule."""
    exponents, right_elements = mxfp4(x)
    scales = np.ldexp(1.0, np.repeat(exponents, BLOCK_ELEMENTS))
    if np.array_equal(elements, right_elements * scales):
        return "Return the FP4 numbers themselves, without the scale."
    if np.array_equal(elements, E2M1.round_all(x)):
        return "Divide by the scale before you round."
    if np.array_equal(elements, E2M1.round_all(x * scales)):
        return "Divide by the scale, do not multiply by it."
    if np.allclose(elements, x / scales):
        return "Round the quotient with E2M1.round_all."
    return "Divide the number by two to the power of the exponent, and round with E2M1.round_all."


def picture(x: Any, stored: Mapping[str, tuple[Any, int]]) -> Picture:
    """Draw numbers with an outlier, and the values that several number formats store for them.

    Parameters
    ----------
    x
        The numbers. Numbers above 4 are drawn as an arrow.
    stored
        For each scheme, the stored numbers and the length of a block.
    """
    figure = Figure(figsize=(7.6, 1.45 * len(stored) + 0.45), dpi=100)
    all_axes = figure.subplots(len(stored), 1, sharex=True, squeeze=False)[:, 0]
    figure.subplots_adjust(left=0.07, right=0.99, top=0.94, bottom=0.11, hspace=0.42)
    element_indices = np.arange(len(x))
    is_shown = np.abs(x) <= 4
    sentences = []
    for axes, (name, (values, block)) in zip(all_axes, stored.items(), strict=True):
        axes.vlines(
            element_indices[is_shown],
            0,
            np.asarray(values)[is_shown],
            color=find_hex("accent"),
            lw=2.2,
            label="stored",
        )
        axes.plot(
            element_indices[is_shown],
            np.asarray(x)[is_shown],
            "o",
            ms=3,
            color=find_hex("warn"),
            label="exact",
        )
        for outlier_index in element_indices[~is_shown]:
            axes.annotate(
                f"{x[outlier_index]:g}",
                (outlier_index, 3.4),
                (outlier_index + 1.5, 2.6),
                fontsize=9,
                color=find_hex("muted"),
            )
            axes.vlines(outlier_index, 0, 3.6, color=find_hex("tail"), lw=2.2)
        for block_start in range(block, len(x), block):
            axes.axvline(block_start - 0.5, color=find_hex("muted"), lw=0.8, ls=":")
        zero_count = int((np.asarray(values)[is_shown] == 0).sum())
        axes.set_title(
            f"{name}: {zero_count} of {int(is_shown.sum())} are stored as 0", fontsize=10, loc="left", pad=3
        )
        axes.set_ylim(-3.6, 3.8)
        axes.set_yticks([-2, 0, 2])
        axes.tick_params(labelsize=9)
        for spine_side in ("top", "right"):
            axes.spines[spine_side].set_visible(False)
        sentences.append(
            f"{name}, blocks of {block:,}, stores {zero_count} of {int(is_shown.sum())} numbers as 0"
        )
    all_axes[-1].set_xlabel("index of the number; dotted lines separate blocks", fontsize=10)
    all_axes[0].legend(loc="upper right", bbox_to_anchor=(1.0, 1.35), ncols=2, frameon=False, fontsize=9)
    return Picture.of(figure, f"{len(x)} numbers with an outlier: {'; '.join(sentences)}.")
