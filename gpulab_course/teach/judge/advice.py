"""Functions that recognise particular mistakes in a failed answer, for the `when` of an `Advice`.

Each function takes a `Mistake` and returns a bool, or returns such a function (a *matcher*). ``match_all``,
``match_any`` and ``match_not`` combine matchers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpulab_course.teach.judge.compare import Array
from gpulab_course.teach.judge.exercise import Advice, Matcher, Mistake


def is_fault(kind: str, array: str = "") -> Matcher:
    """Return a function that checks whether a fault of this kind, optionally in an access to `array`, stopped
    a kernel.
    """
    return lambda m: m.fault_kind == kind and (not array or m.fault_array == array)


is_out_of_bounds: Matcher = is_fault("out of bounds")


def is_out_of_shared_memory(m: Mistake) -> bool:
    """Return whether an access beyond the block's shared memory stopped the kernel."""
    return is_out_of_bounds(m) and "outside shared memory" in m.message


def is_endless(m: Mistake) -> bool:
    """Return whether the kernel was stopped because it ran for too long."""
    return m.fault_kind in ("endless", "too long")


def is_hazard(*kinds: str) -> Matcher:
    """Return a function that checks whether the sanitizer found a hazard of these kinds, or of any kind."""
    return lambda m: m.stage == "hazards" and (not kinds or m.hazard_kind in kinds)


def is_in_stage(stage: str) -> Matcher:
    """Return a function that checks whether an answer failed in this stage."""
    return lambda m: m.stage == stage


def is_unchanged(m: Mistake) -> bool:
    """Return whether the kernel changed no element of the output."""
    return (
        m.actual_values is not None
        and m.initial_contents is not None
        and _is_same(m.actual_values, m.initial_contents)
    )


def is_partly_unwritten(m: Mistake) -> bool:
    """Return whether all wrong elements of the output still have their initial contents."""
    if m.actual_values is None or m.initial_contents is None or not m.wrong_elements.any():
        return False
    return _is_same(m.actual_values[m.wrong_elements], m.initial_contents[m.wrong_elements])


def is_not_finite(m: Mistake) -> bool:
    """Return whether a wrong element of the output is not a finite number."""
    return m.actual_values is not None and not np.isfinite(m.actual_values[m.wrong_elements]).all()


def is_nearly_right(m: Mistake) -> bool:
    """Return whether only rounding errors distinguish the output from the expected output."""
    if m.actual_values is None or m.expected_values is None:
        return False
    return bool(np.allclose(m.actual_values, m.expected_values, rtol=1e-4, atol=1e-30, equal_nan=True))


def is_only_first_right(m: Mistake) -> bool:
    """Return whether only element 0 of the output is right, and no other element was written."""
    return is_partly_unwritten(m) and not m.wrong_elements.flat[0] and bool(m.wrong_elements.flat[1:].all())


def is_written_twice(m: Mistake) -> bool:
    """Return whether two threads wrote the same value to one element of the output."""
    return m.stage == "hazards" and m.hazard_kind == "WAW"


def is_tail_wrong(m: Mistake) -> bool:
    """Return whether the output is right before some index, and all of its later elements are wrong."""
    if m.actual_values is None or not m.wrong_elements.size:
        return False
    is_wrong = m.wrong_elements.ravel()
    first_wrong_index = int(is_wrong.argmax())
    return first_wrong_index > 0 and bool(is_wrong[first_wrong_index:].all())


def is_result_of(compute_mistaken_result: Callable[[Mistake], Any]) -> Matcher:
    """Return a function that checks whether the output of a mistake equals
    ``compute_mistaken_result(mistake)``.

    `compute_mistaken_result` can read the inputs of the failed launch, as in ``lambda m: m["x"] + 1``.
    """

    def is_match(m: Mistake) -> bool:
        if m.actual_values is None:
            return False
        with np.errstate(all="ignore"):
            return bool(_is_close(m.actual_values, compute_mistaken_result(m)))

    return is_match


def is_transposed(m: Mistake) -> bool:
    """Return whether the output is the transpose of the expected output."""
    if m.actual_values is None or m.expected_values is None or m.expected_values.ndim != 2:
        return False
    return _is_close(m.actual_values.reshape(m.expected_values.shape[::-1]).T, m.expected_values)


def is_multiple(factor: float) -> Matcher:
    """Return a function that checks whether the output is `factor` times the expected output."""
    return lambda m: (
        m.actual_values is not None
        and m.expected_values is not None
        and _is_close(m.actual_values, factor * m.expected_values)
    )


def match_all(*matchers: Matcher) -> Matcher:
    """Return a matcher that is true for a mistake if all of the given matchers are true."""
    return lambda m: all(matcher(m) for matcher in matchers)


def match_any(*matchers: Matcher) -> Matcher:
    """Return a matcher that is true for a mistake if at least one of the given matchers is true."""
    return lambda m: any(matcher(m) for matcher in matchers)


def match_not(matcher: Matcher) -> Matcher:
    """Return a matcher that is true for a mistake if the given matcher is false."""
    return lambda m: not matcher(m)


def add_advice(advice_list: tuple[Advice, ...], mistake: Mistake) -> str:
    """Return the message of a mistake, followed by the first piece of advice that matches it."""
    sentence = next(
        (
            advice.sentence
            for advice in (_ADDS_TO_CONTENTS, *advice_list, *_GENERAL_ADVICE)
            if advice.matches(mistake)
        ),
        "",
    )
    return f"{mistake.message} {sentence}".rstrip()


def _is_same(a: Array, b: Array) -> bool:
    return a.tobytes() == b.tobytes()


def _is_close(a: Array, b: Any) -> bool:
    b = np.asarray(b)
    if a.dtype.kind in "iub" and b.dtype.kind in "iub":
        return bool(np.array_equal(a, b))
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True))


def _is_sum_with_contents(m: Mistake) -> bool:
    # Values added to uninitialized memory, on which no kernel may rely.
    if (
        m.actual_values is None
        or m.initial_contents is None
        or m.expected_values is None
        or m.name in m.case.values
    ):
        return False
    if (
        is_unchanged(m)
        or not np.isfinite(m.initial_contents).all()
        or _is_same(m.actual_values, m.expected_values)
    ):
        return False
    with np.errstate(all="ignore"):
        expected_sum = m.expected_values + m.initial_contents
        if expected_sum.dtype.kind != "f":
            return bool((m.actual_values == expected_sum).all())
        tolerance = (
            4 * np.finfo(expected_sum.dtype).eps * (np.abs(m.expected_values) + np.abs(m.initial_contents))
        )
        is_sum = (np.abs(m.actual_values - expected_sum) <= tolerance) | (m.actual_values == expected_sum)
    return bool((is_sum | (np.isnan(m.actual_values) & np.isnan(expected_sum))).all())


# Comes first, because no other mistake looks like it.
_ADDS_TO_CONTENTS = Advice(
    _is_sum_with_contents,
    "The kernel adds to the initial contents of the output, which are undefined. Assign with =.",
)
_GENERAL_ADVICE = (
    Advice(is_written_twice, "Each element must be written by only one thread."),
    Advice(is_unchanged, "Nothing was written. Check that the right threads store the result."),
)
