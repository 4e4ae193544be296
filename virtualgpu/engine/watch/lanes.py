"""Values of 32 lanes at many steps, and C arithmetic on them."""

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
_TYPE_OF_KIND = {
    "s32": INT,
    "s64": LONG,
    "u32": UNSIGNED,
    "u64": CType("unsigned long long", 8, "u64"),
    "pred": BOOL,
    "f32": CType("float", 4, "f32"),
    "f64": CType("double", 8, "f64"),
}
_NUMPY_LETTERS = {"s": "i", "u": "u", "f": "f", "b": "u"}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Array, Array], Any]] = {
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
}
_OPERATIONS: dict[type[ast.operator], Callable[[Array, Array], Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.BitAnd: np.bitwise_and,
    ast.BitOr: np.bitwise_or,
    ast.BitXor: np.bitwise_xor,
}
_INTEGER_OPERATIONS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift, ast.Mod)


@dataclass(frozen=True, slots=True)
class Lanes:
    """The values of an expression in the 32 lanes of a warp at every step. The arrays can be broadcast to the
    shape ``[step, 32]``.

    ``is_known`` marks known values, ``is_outside`` indices outside of their array. ``address`` is the address
    of an object in memory; its ``value`` is read only when it is needed.
    """

    type: CType
    value: Array | None
    is_known: Bools
    is_outside: Bools
    address: npt.NDArray[np.int64] | None = None

    @property
    def numbers(self) -> Array:
        assert self.value is not None
        return self.value


def dtype_of(kind: str) -> np.dtype[Any]:
    """Return the NumPy dtype of a PTX type such as ``s32``."""
    return np.dtype(
        np.bool_ if kind == "pred" else f"{_NUMPY_LETTERS[kind[0]]}{int(kind.lstrip('bfsu')) // 8}"
    )


def from_bits(bits: npt.NDArray[np.uint64], kind: str) -> Array:
    """Convert the lowest bits of unsigned integers to numbers of a PTX type such as ``f32``.

    Half-precision numbers are converted to float.
    """
    if kind == "pred":
        return (bits & np.uint64(1)).astype(np.bool_)
    width_bytes = int(kind.lstrip("bfsu")) // 8
    low_bits = bits.astype(f"u{width_bytes}")
    if kind == "bf16":
        return (low_bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return low_bits.view(np.float16).astype(np.float32) if kind == "f16" else low_bits.view(dtype_of(kind))


def to_bits(numbers: Array) -> npt.NDArray[np.uint64]:
    """Return the bits of numbers as unsigned integers. The upper bits of each integer are 0."""
    if numbers.dtype == np.bool_:
        return numbers.astype(np.uint64)
    return np.ascontiguousarray(numbers).view(f"u{numbers.dtype.itemsize}").astype(np.uint64)


def make_constant(value: Any, kind: str = "") -> Lanes:
    """Return the value of a literal number in all lanes. An imaginary number represents a C ``float``
    literal.
    """
    true_mask = np.ones((1, 1), np.bool_)
    false_mask = np.zeros((1, 1), np.bool_)
    kind = kind or _find_kind(value)
    real_number = value.imag if isinstance(value, complex) else value
    return Lanes(_TYPE_OF_KIND[kind], np.full((1, 1), real_number, dtype_of(kind)), true_mask, false_mask)


def _find_kind(value: Any) -> str:
    if not isinstance(value, int):
        return "f32" if isinstance(value, complex) else "f64"
    if isinstance(value, bool):
        return "pred"
    if -(1 << 31) <= value < 1 << 31:
        return "s32"
    return "s64" if value < 1 << 63 else "u64"


def _promote_kind(lanes: Lanes) -> str:
    """Return the type in which C computes with a number: int for small integers, float for halves."""
    number_kind = lanes.type.kind
    if number_kind[0] in "fb":
        return "f64" if number_kind == "f64" else "f32"
    return number_kind if number_kind[1:] in ("32", "64") else "s32"


def _find_common_kind(left: Lanes, right: Lanes) -> str:
    """Return the type in which C computes with two numbers (ISO C, 6.3.1.8)."""
    kinds = _promote_kind(left), _promote_kind(right)
    if "f" in (kinds[0][0], kinds[1][0]):
        return max(number_kind for number_kind in kinds if number_kind[0] == "f")
    width_bits = max(int(number_kind[1:]) for number_kind in kinds)
    return f"{'u' if any(number_kind == f'u{width_bits}' for number_kind in kinds) else 's'}{width_bits}"


def _combine_lanes(result_type: CType, value: Array, *operands: Lanes) -> Lanes:
    known_lanes = operands[0].is_known
    is_outside = operands[0].is_outside
    for operand in operands[1:]:
        known_lanes = known_lanes & operand.is_known
        is_outside = is_outside | operand.is_outside
    return Lanes(result_type, value, known_lanes, is_outside)


def compare_lanes(op: ast.cmpop, left: Lanes, right: Lanes) -> Lanes:
    """Return the result of comparing two numbers in every lane."""
    dtype = dtype_of(_find_common_kind(left, right))
    truth_values = _COMPARISONS[type(op)](left.numbers.astype(dtype), right.numbers.astype(dtype))
    return _combine_lanes(BOOL, truth_values, left, right)


def compute_operation(op: ast.operator, left: Lanes, right: Lanes, text: str) -> Lanes:
    """Return the result of an arithmetic operation in every lane, computed in the same type as in C.

    Raises
    ------
    WatchError
        If C does not have this operation for floating-point numbers.
    """
    common_kind = _find_common_kind(left, right)
    if common_kind[0] == "f" and isinstance(op, _INTEGER_OPERATIONS):
        raise WatchError(
            f"`{text}`: this operator needs integers, but one operand is a floating-point number."
        )
    x = left.numbers.astype(dtype_of(common_kind))
    y = right.numbers.astype(dtype_of(common_kind))
    result = _combine_lanes(_TYPE_OF_KIND[common_kind], x, left, right)
    with np.errstate(all="ignore"):
        if type(op) in _OPERATIONS:
            return replace(result, value=_OPERATIONS[type(op)](x, y))
        if isinstance(op, (ast.LShift, ast.RShift)):
            shift_amount = y & y.dtype.type(8 * y.dtype.itemsize - 1)
            return replace(
                result, value=x << shift_amount if isinstance(op, ast.LShift) else x >> shift_amount
            )
        if common_kind[0] == "f":
            return replace(result, value=x / y)
        # C cuts a quotient towards 0, NumPy down.
        divisor = np.where(y == 0, y.dtype.type(1), y)
        quotient = x // divisor
        quotient = quotient + ((quotient * divisor != x) & ((x < 0) != (divisor < 0))).astype(x.dtype)
        value = quotient if isinstance(op, ast.Div) else x - quotient * divisor
        return replace(result, value=value, is_known=result.is_known & (y != 0))


def apply_sign(op: ast.unaryop, operand: Lanes, text: str) -> Lanes:
    """Apply the unary operator ``-``, ``+`` or ``~`` to the number in every lane.

    Raises
    ------
    WatchError
        If C does not have this operation for a floating-point number.
    """
    promoted_kind = _promote_kind(operand)
    operand_numbers = operand.numbers.astype(dtype_of(promoted_kind))
    if isinstance(op, ast.Invert) and promoted_kind[0] == "f":
        raise WatchError(
            f"`{text}`: the operator ~ needs an integer, but its operand is a floating-point number."
        )
    with np.errstate(all="ignore"):
        value = operand_numbers
        if isinstance(op, ast.Invert):
            value = ~operand_numbers
        elif isinstance(op, ast.USub):
            value = -operand_numbers
    return Lanes(_TYPE_OF_KIND[promoted_kind], value, operand.is_known, operand.is_outside)


def truth_of(operand: Lanes) -> Bools:
    """Return for each lane whether the number is true in C. Any number other than 0 is true."""
    return np.asarray(operand.numbers != 0)
