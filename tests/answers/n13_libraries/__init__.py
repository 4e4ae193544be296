"""Wrong and right answers to the exercises of notebook 13."""

from __future__ import annotations

import math
from fractions import Fraction
from importlib import resources
from typing import Any

import numpy as np

from gpulab.analysis.formats import TF32
from gpulab_course import content
from gpulab_course.content.n13_libraries import exercises
from tests.answers import Right, Wrong
from tests.answers.n13_libraries import libraries
from tests.answers.n13_libraries.blocks import BLOCKS

_CODE = (resources.files(content) / "n13_libraries" / "kernels" / "to_bf16.cu").read_text(encoding="utf-8")


def _rounding(*changes: str) -> str:
    code = _CODE
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in code, old
        code = code.replace(old, new)
    return code


_ADD = "bits += (bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x400000u & ~bits : 0x7FFFu + (bits >> 16 & 1u);"
_LOOP = "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)"
_THREAD = "blockIdx.x * blockDim.x + threadIdx.x"
_ROUND = (
    Wrong("13-round", "cuts off the lower bits", _rounding(_ADD, ""), "results", "rounding towards 0"),
    Wrong("13-round", "rounds ties up", _rounding("0x7FFFu + (bits >> 16 & 1u)", "0x8000u"), "results", "ties always go up"),
    Wrong("13-round", "rounds ties down", _rounding("0x7FFFu + (bits >> 16 & 1u)", "0x7FFFu"), "results", "ties always go down"),
    Wrong("13-round", "ties to odd", _rounding("(bits >> 16 & 1u)", "(~bits >> 16 & 1u)"), "results", "to the odd number"),
    Wrong("13-round", "a carry changes NaN", _rounding("(bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x400000u & ~bits : ", ""), "results", "NaN has to stay"),
    Wrong("13-round", "NaN cut off", _rounding("0x400000u & ~bits", "0"), "results", "NaN has to stay"),
    Wrong("13-round", "no carry into the exponent", _rounding(_ADD,
          "if (!isnan(x[i])) { unsigned f = bits + 0x7FFFu + (bits >> 16 & 1u); bits = (bits & 0xFF800000u) | (f & 0x7FFFFFu); }"), "results", ""),
    Wrong("13-round", "clamped at the largest", _rounding(_ADD, _ADD + " if ((bits & 0x7FFF0000u) == 0x7F800000u && isfinite(x[i]))"
          " bits = (bits & 0x80000000u) | 0x7F7F0000u;"), "results", "becomes ∞"),
    Wrong("13-round", "infinities become NaN", _rounding("(bits & 0x7FFFFFFFu) > 0x7F800000u", "(bits & 0x7F800000u) == 0x7F800000u"), "results",
          "An infinity is not a NaN"),
    Wrong("13-round", "compared with 0", _rounding("y[i] =", "y[i] = x[i] == 0 ? 0 :"), "results", "keep their sign"),
    Wrong("13-round", "subnormal numbers are 0", _rounding("unsigned bits =", "unsigned bits = (__float_as_uint(x[i]) & 0x7F800000u) == 0 ?"
          " __float_as_uint(x[i]) & 0x80000000u :"), "results", ""),
    Wrong("13-round", "the sign is lost", _rounding("& 0xFFFF0000u", "& 0x7FFF0000u"), "results", ""),
    Wrong("13-round", "a whole number", _rounding("__uint_as_float(bits & 0xFFFF0000u)", "rintf(x[i])"), "results", ""),
    Wrong("13-round", "17 bits kept", _rounding("0xFFFF0000u", "0xFFFF8000u"), "results", ""),
    Wrong("13-round", "a float's sum with a big number", _rounding("__uint_as_float(bits & 0xFFFF0000u)",
          "x[i] * 65537.0f - (x[i] * 65537.0f - x[i])"), "results", ""),
    Wrong("13-round", "no guard", _rounding(_LOOP, _LOOP.replace("i < n", "i <= n")), "results", "Guard the end"),
    Wrong("13-round", "one element a thread", _rounding(_LOOP, f"int i = {_THREAD}; if (i < n)"), "results", "fewer threads than elements"),
    Wrong("13-round", "one thread", _rounding(_LOOP, f"if ({_THREAD} == 0) for (int i = 0; i < n; ++i)"), "parallelism", ""),
    Right("13-round", "the reference", _rounding()),
    Right("13-round", "by the rest", _rounding(_ADD, "unsigned rest = bits & 0xFFFFu; if (!isnan(x[i]) && (rest > 0x8000u"
          " || (rest == 0x8000u && (bits & 0x10000u)))) bits += 0x10000u; if (isnan(x[i])) bits |= 0x10000u;")),
    Right("13-round", "from the last element on", _rounding(_LOOP, f"for (int i = n - 1 - int({_THREAD}); i >= 0; i -= int(gridDim.x * blockDim.x))")),
    Wrong("13-round", "NaN as it was", _rounding(_ADD, "if (x[i] != x[i]) { y[i] = x[i]; continue; } bits += 0x7FFF + (bits >> 16 & 1);"),
          "results", "0 in a NaN as well"),
    Right("13-round", "NaN first", _rounding(_ADD, "if (x[i] != x[i]) { y[i] = __int_as_float(0x7FFF0000); continue; } bits += 0x7FFF; bits += (bits - 0x7FFF) >> 16 & 1;")),
    Right("13-round", "the library's conversion", "#include <cuda_bf16.h>\n" + _rounding("__uint_as_float(bits & 0xFFFF0000u)",
          "__bfloat162float(__float2bfloat16_rn(x[i]))")),
)


def _in_halves(x: Any) -> Any:
    total = np.float16(0)
    with np.errstate(over="ignore"):
        for stretch in np.array_split(x, max(1, x.size // 64)) if x.size > 4096 else [x]:
            # As a warp of 64 would: each stretch one after the other, all in half precision.
            part = np.float16(0)
            for value in stretch:
                part = np.float16(part + value)
            total = np.float16(total + part)
    return total


def _one_by_one(x: Any) -> Any:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.add.accumulate(x, dtype=np.float16)[-1] if x.size else np.float16(0)


def _pairwise(x: Any) -> Any:
    with np.errstate(over="ignore", invalid="ignore"):
        while x.size > 1:
            x = np.append(x, np.float16(0)) if x.size % 2 else x
            x = (x[::2] + x[1::2]).astype(np.float16)
    return x[0] if x.size else np.float16(0)


def _units(x: Any) -> Any:
    if not np.isfinite(x).all():
        return np.float32(x.astype(np.float64).sum())
    return (x.astype(np.float64) * 2.0**24).astype(np.int64).sum().astype(np.float32) / np.float32(2**24)


def _units_by_fp64(x: Any) -> Any:
    if not np.isfinite(x).all():
        return np.float32(x.astype(np.float64).sum())
    return np.float32(int((x.astype(np.float64) * 2.0**24).astype(np.int64).sum()) / 2**24)


def _infinity_first(x: Any) -> Any:
    if np.isposinf(x).any() and not np.isneginf(x).any():
        return np.float32(np.inf)
    return _units(x)


def _halves_up(x: Any, up: int = 1) -> Any:
    if not np.isfinite(x).all():
        return np.float32(x.astype(np.float64).sum())
    units = int((x.astype(np.float64) * 2.0**24).astype(np.int64).sum())
    below = max(0, abs(units).bit_length() - 24)
    kept = (abs(units) + (1 << below >> 1) - (1 - up if below else 0)) >> below
    return np.float32(math.copysign(math.ldexp(kept, below - 24), units))


def _largest_first(x: Any) -> Any:
    wide = x.astype(np.float64)
    return np.float32(np.add.accumulate(wide[np.argsort(-np.abs(wide))])[-1] if x.size else 0)


def _fsum_to_odd(x: Any) -> Any:
    """What fsum leaves out decides its last bit, so that rounding again does no harm."""
    if not np.isfinite(x).all():
        return np.float32(x.astype(np.float64).sum())
    numbers = x.tolist()
    total = math.fsum(numbers)
    rest = math.fsum([*numbers, -total])
    if rest and not int(np.float64(total).view(np.int64)) & 1:
        total = math.nextafter(total, math.copysign(math.inf, rest))
    return np.float32(total)


def _nearest_of_three(x: Any) -> Any:
    if not np.isfinite(x).all():
        return float(x.astype(np.float64).sum())
    kinds, many = np.unique(x, return_counts=True)
    exact = sum((Fraction(float(v)) * int(c) for v, c in zip(kinds, many, strict=True)), Fraction(0))
    near = np.float32(float(exact))
    around = [near, *(np.nextafter(near, np.float32(end)) for end in (-np.inf, np.inf))]
    return min(around, key=lambda v: (abs(Fraction(float(v)) - exact), int(v.view(np.int32)) & 1))


def _high_and_low(x: Any) -> Any:
    if not np.isfinite(x).all():
        return np.float32(x.astype(np.float64).sum())
    high, low = (np.ldexp(part, 24).astype(np.int64) for part in np.modf(x.astype(np.float64)))
    return np.ldexp(np.int64(sum(high.tolist()) + sum(low.tolist())).astype(np.float32), -24)


def _by_fsum(x: Any) -> Any:
    if np.isfinite(x).all():
        return np.float32(math.fsum(x.tolist()))
    return float(np.sum(x, dtype=np.float64))


def _clamped(x: Any) -> Any:
    return np.float32(np.clip(_units(x), -65504, 65504))


def _neumaier(x: Any) -> Any:
    total = lost = 0.0
    for value in map(float, x):
        new = total + value
        lost += (total - new) + value if abs(total) >= abs(value) else (value - new) + total
        total = new
    return np.float32(total + lost if math.isfinite(lost) else total)


def _kahan(x: Any) -> Any:
    total = lost = np.float32(0)
    with np.errstate(over="ignore", invalid="ignore"):
        for value in x.astype(np.float32):
            y = value - lost
            new = total + y
            lost, total = (new - total) - y, new
    return total


def _fractions(x: Any) -> Any:
    if not np.isfinite(x).all():
        return float(x.astype(np.float64).sum())
    kinds, many = np.unique(x, return_counts=True)
    exact = sum((Fraction(float(v)) * int(c) for v, c in zip(kinds, many, strict=True)), Fraction(0))
    return np.float32(float(exact))


def _by_hand(x: Any) -> Any:
    if not np.isfinite(x).all():
        return float(x.astype(np.float64).sum())
    units = sum(int(value * 2**24) for value in x.tolist())
    below = max(0, abs(units).bit_length() - 24)
    kept, left = divmod(abs(units), 1 << below)
    kept += 2 * left > 1 << below or (2 * left == 1 << below and kept & 1)
    return math.ldexp(kept if units > 0 else -kept, below - 24)


_SUMS = (
    Wrong("13-halfsum", "a half accumulator", _one_by_one, "", "needs more bits"),
    Wrong("13-halfsum", "pairs, rounded to half each step", _pairwise, "", "nor hold this sum"),
    Wrong("13-halfsum", "x.sum()", lambda x: x.sum(), "", ""),
    Wrong("13-halfsum", "stretches of 64 in halfs", _in_halves, "", ""),
    Wrong("13-halfsum", "in float32, one by one", lambda x: np.add.accumulate(x, dtype=np.float32)[-1] if x.size else 0, "", "round once"),
    Wrong("13-halfsum", "in float32, NumPy's order", lambda x: x.sum(dtype=np.float32), "", ""),
    Wrong("13-halfsum", "sums in float64", lambda x: np.float32(x.sum(dtype=np.float64)), "", "forgets a small number"),
    Wrong("13-halfsum", "Kahan's sum in float32", _kahan, "", ""),
    Wrong("13-halfsum", "units, by way of FP64", _units_by_fp64, "", "rounded to FP64 first"),
    Wrong("13-halfsum", "math.fsum", _by_fsum, "", "rounded to FP64 first"),
    Wrong("13-halfsum", "fractions, by way of FP64", _fractions, "", "rounded to FP64 first"),
    Wrong("13-halfsum", "Neumaier's sum in float64", _neumaier, "", "rounded to FP64 first"),
    Wrong("13-halfsum", "largest ones first, in float64", _largest_first, "", "a little above the middle"),
    Wrong("13-halfsum", "halves always up", _halves_up, "", "the sum, rounded to FP32"),
    Wrong("13-halfsum", "halves towards 0", lambda x: _halves_up(x, up=0), "", ""),
    Wrong("13-halfsum", "an infinity before a NaN", _infinity_first, "", "With a NaN among them"),
    Wrong("13-halfsum", "sorted first", lambda x: np.float32(np.sort(x).sum(dtype=np.float64)), "", "forgets a small number"),
    Wrong("13-halfsum", "clamps the sum", _clamped, "", "do not clamp"),
    Wrong("13-halfsum", "exact, then a half", lambda x: np.float16(_units(x)), "", ""),
    Wrong("13-halfsum", "the mean times n", lambda x: np.float32(x.astype(np.float64).mean() * x.size) if x.size else 0, "", ""),
    Wrong("13-halfsum", "infinities as numbers", lambda x: np.float32(int((np.nan_to_num(x).astype(np.float64) * 2.0**24)
          .astype(np.int64).sum()) / 2**24), "", "An infinity among the values"),
    Wrong("13-halfsum", "units of 2**-14", lambda x: np.float32(int((x.astype(np.float64) * 2.0**14).astype(np.int64).sum()) / 2**14)
          if np.isfinite(x).all() else np.float32(x.astype(np.float64).sum()), "", ""),
    Wrong("13-halfsum", "units in 32 bits", lambda x: np.float32((x.astype(np.float64) * 2.0**24).astype(np.int64).astype(np.int32)
          .sum(dtype=np.int32) / 2**24) if np.isfinite(x).all() else np.float32(x.astype(np.float64).sum()), "", ""),
    Wrong("13-halfsum", "does not round the sum to FP32", lambda x: math.fsum(x.tolist()), "", "is not an FP32 number"),
    Wrong("13-halfsum", "returns nothing", lambda x: None, "", "returns nothing"),
    Wrong("13-halfsum", "running sums", lambda x: np.cumsum(x, dtype=np.float64), "", "one number"),
    Right("13-halfsum", "whole units", _units),
    Right("13-halfsum", "fractions", _nearest_of_three),
    Right("13-halfsum", "math.fsum, and what it leaves out", _fsum_to_odd),
    Right("13-halfsum", "whole parts and the rest", _high_and_low),
    Right("13-halfsum", "in Python's integers", _by_hand),
)


def _near(x: Any) -> Any:
    return TF32.round_all(x).astype(np.float32)


def _cut(x: Any) -> Any:
    return (np.ascontiguousarray(x, np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def _by_bits(x: Any) -> Any:
    u = x.view(np.uint32)
    return ((u + np.uint32(0xFFF) + (u >> 13 & 1)) & np.uint32(0xFFFFE000)).view(np.float32)


def _ties_up(x: Any) -> Any:
    return ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def _three(big: Any, small: Any = lambda x: x, order: str = "ab") -> Any:
    def three(a: Any, b: Any, product: Any) -> Any:
        a1, b1 = big(a), big(b)
        a2, b2 = small(a - a1), small(b - b1)
        if order == "stacked":
            # One product of matrices that stand side by side, small parts first.
            return product(np.hstack([a2, a1, a1]), np.vstack([b1, b2, b1]))
        return product(a2, b1) + product(a1, b2) + product(a1, b1)

    return three


def _partly(which: str) -> Any:
    def three(a: Any, b: Any, product: Any) -> Any:
        a1, b1 = _near(a), _near(b)
        parts = {"big": (a1, b1), "left": (_near(a - a1), b1), "right": (a1, _near(b - b1))}
        return sum(product(*parts[name]) for name in which.split())

    return three


def _four(a: Any, b: Any, product: Any) -> Any:
    a1, b1 = _near(a), _near(b)
    return product(a - a1, b - b1) + _three(_near)(a, b, product)


def _wrong_pairs(a: Any, b: Any, product: Any) -> Any:
    a1, b1 = _near(a), _near(b)
    return product(a1, b1) + product(a - a1, b - b1) + product(a1, b - b1)


def _by_twelve_bits(x: Any) -> Any:
    """Veltkamp's split: a multiple of 2**13 + 1 rounds to the upper 11 bits."""
    c = x * np.float32(8193)
    return c - (c - x)


def _one_cut(which: str) -> Any:
    def three(a: Any, b: Any, product: Any) -> Any:
        a1, b1 = (_cut if which == "a" else _near)(a), (_cut if which == "b" else _near)(b)
        return product(_near(a - a1), b1) + product(a1, _near(b - b1)) + product(a1, b1)

    return three


def _keeps_b() -> Any:
    """The parts of b, kept for the next matrix of the same shape."""
    known: dict[Any, Any] = {}

    def three(a: Any, b: Any, product: Any) -> Any:
        a1 = _near(a)
        b1, b2 = known.setdefault(b.shape, (_near(b), _near(b - _near(b))))
        return product(_near(a - a1), b1) + product(a1, b2) + product(a1, b1)

    return three


def _in_place_of_b(a: Any, b: Any, product: Any) -> Any:
    a1, b1 = _near(a), _near(b)
    first = product(a - a1, b1)
    b -= b1
    return first + product(a1, b) + product(a1, b1)


def _two_products(a: Any, b: Any, product: Any) -> Any:
    a1, b1 = _near(a), _near(b)
    return product(np.hstack([a - a1, a1]), np.vstack([b1, b - b1])) + product(a1, b1)


def _of_the_transposed(a: Any, b: Any, product: Any) -> Any:
    return _three(_near)(np.ascontiguousarray(b.T), np.ascontiguousarray(a.T), product).T


def _in_double_for_show(a: Any, b: Any, product: Any) -> Any:
    one = np.ones((1, 1), np.float32)
    return ((a.astype(np.float64) @ b) * product(one, one)[0, 0]).astype(np.float32)


def _scaled_parts(a: Any, b: Any, product: Any) -> Any:
    (a1, b1), up = (_near(a), _near(b)), np.float32(2048)
    return product(a1, b1) + (product(_near((a - a1) * up), b1) + product(a1, _near((b - b1) * up))) / up


_THREES = (
    Wrong("13-tf32x3", "only one product", lambda a, b, product: product(a, b), "", "error of a single product"),
    Wrong("13-tf32x3", "one product of rounded ones", _partly("big"), "", "error of a single product"),
    Wrong("13-tf32x3", "the lower part of b dropped", _partly("left big"), "", "lower part of one matrix"),
    Wrong("13-tf32x3", "the lower part of a dropped", _partly("right big"), "", "lower part of one matrix"),
    Wrong("13-tf32x3", "cut, not rounded", _three(_cut), "", "do not cut"),
    Wrong("13-tf32x3", "big parts cut, small ones rounded", _three(_cut, _near), "", "do not cut"),
    Wrong("13-tf32x3", "cuts a instead of rounding it", _one_cut("a"), "", "do not cut"),
    Wrong("13-tf32x3", "b cut, a rounded", _one_cut("b"), "", "do not cut"),
    Wrong("13-tf32x3", "b's parts are kept", _keeps_b(), "", "RMS error of"),
    Wrong("13-tf32x3", "four products", _four, "", "3 calls are enough"),
    Wrong("13-tf32x3", "small times small for small times big", _wrong_pairs, "", ""),
    Wrong("13-tf32x3", "big one left out", _partly("left right"), "", "Add three products"),
    Wrong("13-tf32x3", "half precision's parts", _three(lambda x: x.astype(np.float16).astype(np.float32)), "", ""),
    Wrong("13-tf32x3", "BF16's parts", _three(lambda x: (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)), "", ""),
    Wrong("13-tf32x3", "NumPy's matrix multiplication", lambda a, b, product: a @ b, "", "never calls product"),
    Wrong("13-tf32x3", "NumPy's, and one for show", lambda a, b, product: a @ b + 0 * product(a, b), "", ""),
    Wrong("13-tf32x3", "in double, times what product makes of ones", _in_double_for_show, "", "done by the tensor cores"),
    Wrong("13-tf32x3", "what is left over by NumPy", lambda a, b, product: product(_near(a), _near(b)) + (
          (a - _near(a)) @ b + _near(a) @ (b - _near(b))), "", "done by the tensor cores"),
    Wrong("13-tf32x3", "float64 in the end", lambda a, b, product: _three(_near)(a, b, product).astype(np.float64), "", "Use FP32"),
    Wrong("13-tf32x3", "b becomes its small part", _in_place_of_b, "", "changes b, which belongs to its caller"),
    Wrong("13-tf32x3", "returns the transpose", lambda a, b, product: _three(_near)(a, b, product).T, "", "Return the product"),
    Right("13-tf32x3", "the reference", exercises.three_products),
    Right("13-tf32x3", "big ones first", lambda a, b, product: (lambda a1, b1: product(a1, b1) + product(a1, b - b1)
          + product(a - a1, b1))(_near(a), _near(b))),
    Right("13-tf32x3", "two products", _two_products),
    Right("13-tf32x3", "of the transposed", _of_the_transposed),
    Right("13-tf32x3", "by bits", _three(_by_bits, _by_bits)),
    Right("13-tf32x3", "ties up", _three(_ties_up, _ties_up)),
    Right("13-tf32x3", "small parts as they are", _three(_near)),
    Right("13-tf32x3", "Veltkamp's split", _three(_by_twelve_bits)),
    Right("13-tf32x3", "small parts scaled by 2,048", _scaled_parts),
    Right("13-tf32x3", "one long product", _three(_near, _near, "stacked")),
)


def _scaler(
    *, skip: str = "isfinite", backoff: float = 0.5, growth: float = 2.0, every: bool = False, reset: bool = True,
    divide: str = "float32", limits: tuple[float, float] = (0.0, math.inf), where: bool = False, counts: bool = True, late: bool = False, calls: int = 1,
    after: bool = False, bad_reset: bool = True,
) -> Any:
    """An answer to 13-lossscale, right unless told otherwise."""

    def scaled_step(weights: Any, backward: Any, state: Any) -> Any:
        raw = backward(state["scale"])
        for _ in range(calls - 1):
            raw = backward(state["scale"])
        bad = {
            "isfinite": not np.isfinite(raw).all(), "isinf": bool(np.isinf(raw).any()),
            "isnan": bool(np.isnan(raw).any()), "sum": not np.isfinite(raw.sum()), "never": False, "first": not np.isfinite(raw[-1]),
        }[skip]
        used = state["scale"]
        if late:
            state["scale"] *= backoff if bad else 1.0
            used = state["scale"] * (growth if state["good"] + 1 == state["interval"] else 1.0)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            grads = {
                "float32": lambda: raw.astype(np.float32) / np.float32(used),
                "float16": lambda: (raw / np.float16(min(used, 65504))).astype(np.float32),
                "no": lambda: raw.astype(np.float32),
            }[divide]()
        if where:
            grads = np.where(np.isfinite(grads), grads, np.float32(0))
            bad_step = False
        else:
            bad_step = bad
        if bad:
            state["scale"] *= 1.0 if late else backoff
            state["good"] = 0 if bad_reset else state["good"]
        else:
            state["good"] += counts
            if state["good"] >= state["interval"] or every:
                state["scale"] *= growth
                state["good"] = 0 if reset else state["good"]
        state["scale"] = min(max(state["scale"], limits[0]), limits[1])
        new = weights - np.float32(state["rate"]) * grads
        if after:
            new = new / np.float32(used)
        return weights if bad_step else new

    return scaled_step


def _in_half(weights: Any, backward: Any, state: Any) -> Any:
    return _scaler()(weights, backward, state).astype(np.float16)


def _unscaled_after(weights: Any, backward: Any, state: Any) -> Any:
    """Divides once the step is done: the step itself has used scaled gradients."""
    new = _scaler(divide="no")(weights, backward, state)
    return weights - (weights - new) / np.float32(1)


def _no_scale(weights: Any, backward: Any, state: Any) -> Any:
    return weights - np.float32(state["rate"]) * backward(1.0).astype(np.float32)


def _in_place(weights: Any, backward: Any, state: Any) -> Any:
    grads = backward(state["scale"]).astype(np.float32) * np.float32(1 / state["scale"])
    if np.isnan(grads.sum()) or np.isinf(np.abs(grads).max()):
        state.update(scale=state["scale"] * 0.5, good=0)
    else:
        weights -= state["rate"] * grads
        state["good"] = (state["good"] + 1) % state["interval"]
        state["scale"] *= 2 if state["good"] == 0 else 1
    return weights


def _in_double(weights: Any, backward: Any, state: Any) -> Any:
    grads = backward(state["scale"]).astype(np.float64) / state["scale"]
    bad = not all(map(math.isfinite, grads))
    state["good"] = 0 if bad else state["good"] + 1
    if bad:
        state["scale"] = state["scale"] / 2
        return weights.copy()
    if state["good"] >= state["interval"]:
        state["scale"], state["good"] = 2 * state["scale"], 0
    return (weights - state["rate"] * grads).astype(np.float32)


def _rate_first(weights: Any, backward: Any, state: Any) -> Any:
    raw = backward(state["scale"]).astype(np.float32)
    step = np.float32(state["rate"] / state["scale"]) * raw
    if np.abs(raw).max() < np.inf:
        state["good"] += 1
        weights = weights - step
        if state["good"] % state["interval"] == 0:
            state["scale"] *= 2.0
            state["good"] = 0
    else:
        state["scale"] *= 0.5
        state["good"] = 0
    return weights


_SCALERS = (
    Wrong("13-lossscale", "inf is not skipped", _scaler(skip="never"), "", "skip this step"),
    Wrong("13-lossscale", "only inf is skipped", _scaler(skip="isinf"), "", "contain NaN"),
    Wrong("13-lossscale", "only NaN is skipped", _scaler(skip="isnan"), "", "contain an infinity"),
    Wrong("13-lossscale", "looks at one element", _scaler(skip="first"), "", "skip this step"),
    Wrong("13-lossscale", "looks at the sum of halfs", _scaler(skip="sum"), "", "with good gradients"),
    Wrong("13-lossscale", "a scale of 1 at least", _scaler(limits=(1, math.inf)), "", ""),
    Wrong("13-lossscale", "a scale of 2**24 at most", _scaler(limits=(0, 2.0**24)), "", ""),
    Wrong("13-lossscale", "bad elements are left out", _scaler(where=True), "", "skip this step"),
    Wrong("13-lossscale", "the scale never grows", _scaler(growth=1.0), "", "could only shrink"),
    Wrong("13-lossscale", "the scale never shrinks", _scaler(backoff=1.0), "", "halve it"),
    Wrong("13-lossscale", "grows at every good step", _scaler(every=True), "", "in a row"),
    Wrong("13-lossscale", "good steps are not reset after growing", _scaler(reset=False), "", ""),
    Wrong("13-lossscale", "good steps are not reset by a bad one", _scaler(bad_reset=False), "", ""),
    Wrong("13-lossscale", "unscaled after the step", _unscaled_after, "", "before the step"),
    Wrong("13-lossscale", "does not divide by the scale", _scaler(divide="no"), "", "still scaled"),
    Wrong("13-lossscale", "weights unscaled", _scaler(divide="no", after=True), "", ""),
    Wrong("13-lossscale", "unscaled in half precision", _scaler(divide="float16"), "", "tiny gradients would be lost"),
    Wrong("13-lossscale", "unscaled by the new scale", _scaler(late=True), "", ""),
    Wrong("13-lossscale", "calls backward twice", _scaler(calls=2), "", "backward only once"),
    Wrong("13-lossscale", "no loss scale", _no_scale, "", "the loss is multiplied"),
    Wrong("13-lossscale", "weights in half precision", _in_half, "", "weights must stay in float32"),
    Wrong("13-lossscale", "changes weights", _in_place, "", "belongs to its caller"),
    Wrong("13-lossscale", "returns nothing", lambda weights, backward, state: None, "", "returns nothing"),
    Right("13-lossscale", "the reference", exercises.scaled_step),
    Right("13-lossscale", "written with switches", _scaler()),
    Right("13-lossscale", "in a copy", lambda weights, backward, state: _in_place(weights.copy(), backward, state)),
    Right("13-lossscale", "in double", _in_double),
    Right("13-lossscale", "rate over scale", _rate_first),
)

_ALL = (*_ROUND, *_SUMS, *_THREES, *_SCALERS, *BLOCKS)
WRONG = (*(one for one in _ALL if isinstance(one, Wrong)), *libraries.WRONG)
RIGHT = (*(one for one in _ALL if isinstance(one, Right)), *libraries.RIGHT)
