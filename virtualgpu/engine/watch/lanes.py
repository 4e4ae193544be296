"""Numbers of 32 lanes over many steps, and C's arithmetic with them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx.dwarf import CType
from virtualgpu.errors import WatchError

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]

BOOL = CType("bool", 1, "pred")
INT = CType("int", 4, "s32")
LONG = CType("long long", 8, "s64")
UNSIGNED = CType("unsigned int", 4, "u32")
_PLAIN = {
    "s32": INT,
    "s64": LONG,
    "u32": UNSIGNED,
    "u64": CType("unsigned long long", 8, "u64"),
    "pred": BOOL,
    "f32": CType("float", 4, "f32"),
    "f64": CType("double", 8, "f64"),
}
_LETTERS = {"s": "i", "u": "u", "f": "f", "b": "u"}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Array, Array], Any]] = {
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
}
_SIMPLE: dict[type[ast.operator], Callable[[Array, Array], Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.BitAnd: np.bitwise_and,
    ast.BitOr: np.bitwise_or,
    ast.BitXor: np.bitwise_xor,
}
_WHOLE_ONLY = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift, ast.Mod)


@dataclass(frozen=True, slots=True)
class Lanes:
    """A value of some type in each lane at each step: arrays that broadcast to ``[step, 32]``.

    ``known`` tells where it is known, ``outside`` where an index lay outside of its array. ``place`` is the
    address of what lies in memory; its ``value`` is read only when it is asked for.
    """

    type: CType
    value: Array | None
    known: Bools
    outside: Bools
    place: npt.NDArray[np.int64] | None = None

    @property
    def numbers(self) -> Array:
        assert self.value is not None
        return self.value


def dtype_of(kind: str) -> np.dtype[Any]:
    """How NumPy holds a number of a kind such as ``s32``."""
    return np.dtype(np.bool_ if kind == "pred" else f"{_LETTERS[kind[0]]}{int(kind.lstrip('bfsu')) // 8}")


def from_bits(bits: npt.NDArray[np.uint64], kind: str) -> Array:
    """Numbers from the low bits that hold them; half precision widened, as it is computed with."""
    if kind == "pred":
        return (bits & np.uint64(1)).astype(np.bool_)
    width = int(kind.lstrip("bfsu")) // 8
    low = bits.astype(f"u{width}")
    if kind == "bf16":
        return (low.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return low.view(np.float16).astype(np.float32) if kind == "f16" else low.view(dtype_of(kind))


def to_bits(numbers: Array) -> npt.NDArray[np.uint64]:
    """The bits of numbers, those above them 0."""
    if numbers.dtype == np.bool_:
        return numbers.astype(np.uint64)
    return np.ascontiguousarray(numbers).view(f"u{numbers.dtype.itemsize}").astype(np.uint64)


def constant(value: Any, kind: str = "") -> Lanes:
    """A number as it is written; an imaginary one stands for a float (`reading`)."""
    sure = np.ones((1, 1), np.bool_)
    never = np.zeros((1, 1), np.bool_)
    kind = kind or _kind_of(value)
    plain = value.imag if isinstance(value, complex) else value
    return Lanes(_PLAIN[kind], np.full((1, 1), plain, dtype_of(kind)), sure, never)


def _kind_of(value: Any) -> str:
    if not isinstance(value, int):
        return "f32" if isinstance(value, complex) else "f64"
    if isinstance(value, bool):
        return "pred"
    return "s32" if -(1 << 31) <= value < 1 << 31 else "s64" if value < 1 << 63 else "u64"


def _kind(lanes: Lanes) -> str:
    """The kind that a number has where it is computed with: small ones are ints, halves floats."""
    kind = lanes.type.kind
    if kind[0] in "fb":
        return "f64" if kind == "f64" else "f32"
    return kind if kind[1:] in ("32", "64") else "s32"


def _common(a: Lanes, b: Lanes) -> str:
    """The kind that C computes with (ISO C, 6.3.1.8)."""
    kinds = _kind(a), _kind(b)
    if "f" in (kinds[0][0], kinds[1][0]):
        return max(kind for kind in kinds if kind[0] == "f")
    width = max(int(kind[1:]) for kind in kinds)
    return f"{'u' if any(kind == f'u{width}' for kind in kinds) else 's'}{width}"


def _joined(type_: CType, value: Array, *of: Lanes) -> Lanes:
    known = of[0].known
    outside = of[0].outside
    for each in of[1:]:
        known = known & each.known
        outside = outside | each.outside
    return Lanes(type_, value, known, outside)


def compared(op: ast.cmpop, a: Lanes, b: Lanes) -> Lanes:
    """Whether two numbers compare so."""
    as_kind = dtype_of(_common(a, b))
    truth = _COMPARISONS[type(op)](a.numbers.astype(as_kind), b.numbers.astype(as_kind))
    return _joined(BOOL, truth, a, b)


def computed(op: ast.operator, a: Lanes, b: Lanes, text: str) -> Lanes:
    """An operation on two numbers, in the type that C computes it in.

    Raises
    ------
    WatchError
        If C has no such operation for numbers with a point.
    """
    kind = _common(a, b)
    if kind[0] == "f" and isinstance(op, _WHOLE_ONLY):
        raise WatchError(f"`{text}`: this operator takes whole numbers, and one side has a point.")
    x = a.numbers.astype(dtype_of(kind))
    y = b.numbers.astype(dtype_of(kind))
    result = _joined(_PLAIN[kind], x, a, b)
    with np.errstate(all="ignore"):
        if type(op) in _SIMPLE:
            return replace(result, value=_SIMPLE[type(op)](x, y))
        if isinstance(op, (ast.LShift, ast.RShift)):
            by = y & y.dtype.type(8 * y.dtype.itemsize - 1)
            return replace(result, value=x << by if isinstance(op, ast.LShift) else x >> by)
        if kind[0] == "f":
            return replace(result, value=x / y)
        # C cuts a quotient towards 0, NumPy down.
        safe = np.where(y == 0, y.dtype.type(1), y)
        quotient = x // safe
        quotient = quotient + ((quotient * safe != x) & ((x < 0) != (safe < 0))).astype(x.dtype)
        value = quotient if isinstance(op, ast.Div) else x - quotient * safe
        return replace(result, value=value, known=result.known & (y != 0))


def signed(op: ast.unaryop, a: Lanes, text: str) -> Lanes:
    """Minus, plus or the complement of a number.

    Raises
    ------
    WatchError
        If C has no such operation for a number with a point.
    """
    kind = _kind(a)
    numbers = a.numbers.astype(dtype_of(kind))
    if isinstance(op, ast.Invert) and kind[0] == "f":
        raise WatchError(f"`{text}`: ~ takes whole numbers, and this one has a point.")
    with np.errstate(all="ignore"):
        value = ~numbers if isinstance(op, ast.Invert) else -numbers if isinstance(op, ast.USub) else numbers
    return Lanes(_PLAIN[kind], value, a.known, a.outside)


def truth_of(a: Lanes) -> Bools:
    """A number as C takes it for a truth value."""
    return np.asarray(a.numbers != 0)
