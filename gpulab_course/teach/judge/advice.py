"""Matchers for `Advice`: they recognise one failure each. Combine them with ``both`` and ``not_``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpulab_course.teach.judge.compare import Array
from gpulab_course.teach.judge.exercise import Advice, Matcher, Mistake


def fault(kind: str, array: str = "") -> Matcher:
    """Stopped by a fault of that kind, at the parameter `array` if one is named."""
    return lambda m: m.fault == kind and (not array or m.array == array)


out_of_bounds: Matcher = fault("out of bounds")


def out_of_shared(m: Mistake) -> bool:
    """Stopped by an access beyond the block's shared memory."""
    return out_of_bounds(m) and "outside shared memory" in m.said


def endless(m: Mistake) -> bool:
    """Stopped since it took too long, whether or not something still came of it."""
    return m.fault in ("endless", "too long")


def hazard(*kinds: str) -> Matcher:
    """The sanitizer found one of these kinds; without any, whatever it found."""
    return lambda m: m.stage == "hazards" and (not kinds or m.hazard in kinds)


def in_stage(stage: str) -> Matcher:
    """Failed in that stage."""
    return lambda m: m.stage == stage


def unchanged(m: Mistake) -> bool:
    """The output holds what it held before, everywhere."""
    return m.found is not None and m.start is not None and _same(m.found, m.start)


def partly_unwritten(m: Mistake) -> bool:
    """Wherever the output is wrong, it holds what it held before."""
    if m.found is None or m.start is None or not m.wrong.any():
        return False
    return _same(m.found[m.wrong], m.start[m.wrong])


def not_finite(m: Mistake) -> bool:
    """Among the wrong elements is one that is no finite number."""
    return m.found is not None and not np.isfinite(m.found[m.wrong]).all()


def nearly(m: Mistake) -> bool:
    """Right but for roundings."""
    if m.found is None or m.wanted is None:
        return False
    return bool(np.allclose(m.found, m.wanted, rtol=1e-4, atol=1e-30, equal_nan=True))


def only_first(m: Mistake) -> bool:
    """Element 0 is right, and nothing else was written."""
    return partly_unwritten(m) and not m.wrong.flat[0] and bool(m.wrong.flat[1:].all())


def written_twice(m: Mistake) -> bool:
    """Right, but two threads wrote one element the same value (`KernelExercise.once`)."""
    return m.stage == "hazards" and m.hazard == "WAW"


def tail_wrong(m: Mistake) -> bool:
    """Wrong from some element on to the end, and right before it."""
    if m.found is None or not m.wrong.size:
        return False
    wrong = m.wrong.ravel()
    first = int(wrong.argmax())
    return first > 0 and bool(wrong[first:].all())


def holds(compute: Callable[[Mistake], Any]) -> Matcher:
    """The output is what `compute` makes of the failure's inputs (``m["x"]``)."""

    def matches(m: Mistake) -> bool:
        if m.found is None:
            return False
        with np.errstate(all="ignore"):
            return bool(_close(m.found, compute(m)))

    return matches


def transposed(m: Mistake) -> bool:
    """The output's rows are what its columns should be."""
    if m.found is None or m.wanted is None or m.wanted.ndim != 2:
        return False
    return _close(m.found.reshape(m.wanted.shape[::-1]).T, m.wanted)


def times(factor: float) -> Matcher:
    """The output is so many times what it should be."""
    return lambda m: m.found is not None and m.wanted is not None and _close(m.found, factor * m.wanted)


def both(*matchers: Matcher) -> Matcher:
    """All of them."""
    return lambda m: all(matcher(m) for matcher in matchers)


def either(*matchers: Matcher) -> Matcher:
    """Return a matcher that fits if one of the given matchers fits."""
    return lambda m: any(matcher(m) for matcher in matchers)


def not_(matcher: Matcher) -> Matcher:
    """The other way round."""
    return lambda m: not matcher(m)


def advised(own: tuple[Advice, ...], mistake: Mistake) -> str:
    """Return the message for a mistake, with the first advice that fits."""
    found = next((advice.says for advice in (_ADDS, *own, *_ALWAYS) if advice.when(mistake)), "")
    return f"{mistake.said} {found}".rstrip()


def _same(one: Array, other: Array) -> bool:
    return one.tobytes() == other.tobytes()


def _close(one: Array, other: Any) -> bool:
    other = np.asarray(other)
    if one.dtype.kind in "iub" and other.dtype.kind in "iub":
        return bool(np.array_equal(one, other))
    return one.shape == other.shape and bool(np.allclose(one, other, rtol=1e-4, atol=1e-6, equal_nan=True))


def _initial_contents(m: Mistake) -> bool:
    # What was added to garbage that no kernel may count on.
    if m.found is None or m.start is None or m.wanted is None or m.name in m.case.values:
        return False
    if unchanged(m) or not np.isfinite(m.start).all() or _same(m.found, m.wanted):
        return False
    with np.errstate(all="ignore"):
        total = m.wanted + m.start
        if total.dtype.kind != "f":
            return bool((m.found == total).all())
        room = 4 * np.finfo(total.dtype).eps * (np.abs(m.wanted) + np.abs(m.start))
        near = (np.abs(m.found - total) <= room) | (m.found == total)
    return bool((near | (np.isnan(m.found) & np.isnan(total))).all())


# No other mistake looks like it.
_ADDS = Advice(
    _initial_contents, "It adds to what the output held before, which can be anything: write with =."
)
_ALWAYS = (
    Advice(written_twice, "Every element belongs to one thread."),
    Advice(unchanged, "Nothing was written: is the result stored, and by the right threads?"),
)
