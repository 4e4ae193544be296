"""NumPy's element-wise functions as C++ expressions, for `fuse`."""

from __future__ import annotations

from typing import Any

import numpy as np

# Functions with NumPy's rules, which differ from C++: integer division by zero returns 0, results take the
# divisor's sign, shifts by too many bits return 0 or the sign, integer powers wrap.
HELPER_FUNCTIONS = """\
template <typename T> __device__ T _floor_divide(T a, T b) {
  if (b == 0) return 0;
  T q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}
template <typename T> __device__ T _remainder(T a, T b) {
  if (b == 0) return 0;
  T r = a % b;
  return (r != 0 && (r < 0) != (b < 0)) ? r + b : r;
}
template <typename T> __device__ T _real_remainder(T a, T b) {
  T r = fmod(a, b);
  if (b == 0) return r;
  if (r == 0) return copysign(T(0), b);
  return (b < 0) != (r < 0) ? r + b : r;
}
template <typename T> __device__ T _real_floor_divide(T a, T b) {
  if (b == 0) return a / b;
  T r = fmod(a, b), q = (a - r) / b;
  if (r != 0 && (b < 0) != (r < 0)) q -= 1;
  if (q == 0) return copysign(T(0), a / b);
  T whole = floor(q);
  return q - whole > T(0.5) ? whole + 1 : whole;
}
template <typename T> __device__ T _power(T a, T b) {
  if (b < 0) return a == 1 ? 1 : a == T(-1) ? (b % 2 ? -1 : 1) : 0;
  T result = 1;
  for (; b > 0; b >>= 1, a *= a) if (b & 1) result *= a;
  return result;
}
template <typename T> __device__ T _left_shift(T a, T b) {
  return b >= 0 && b < T(8 * sizeof(T)) ? a << b : 0;
}
template <typename T> __device__ T _right_shift(T a, T b) {
  return b >= 0 && b < T(8 * sizeof(T)) ? a >> b : (a < 0 ? -1 : 0);
}
"""

_ANY_TYPE_EXPRESSIONS = {
    "subtract": "{0} - {1}",
    "negative": "-{0}",
    "positive": "{0}",
    "square": "{0} * {0}",
    "equal": "{0} == {1}",
    "not_equal": "{0} != {1}",
}
_NUMBER_EXPRESSIONS = {
    "add": "{0} + {1}",
    "multiply": "{0} * {1}",
}
_ORDERED_EXPRESSIONS = {
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "greater": "{0} > {1}",
    "greater_equal": "{0} >= {1}",
    "logical_and": "({0} != 0) && ({1} != 0)",
    "logical_or": "({0} != 0) || ({1} != 0)",
    "logical_xor": "({0} != 0) != ({1} != 0)",
    "logical_not": "{0} == 0",
    "maximum": "({0} != {0} || {0} > {1}) ? {0} : {1}",
    "minimum": "({0} != {0} || {0} < {1}) ? {0} : {1}",
    "sign": "{0} != {0} ? {0} : ({0} > 0) - ({0} < 0)",
    "conjugate": "{0}",
}
_SAME_NAME_FUNCTIONS = (
    *("sqrt", "cbrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p"),
    *("sin", "cos", "tan", "sinh", "cosh", "tanh", "floor", "ceil", "trunc", "rint", "fabs"),
)
_TWO_OPERAND_NAMES = {"arctan2": "atan2", "hypot": "hypot", "fmod": "fmod", "fmax": "fmax", "fmin": "fmin"}
_INVERTIBLE_NAMES = ("sin", "cos", "tan", "sinh", "cosh", "tanh")
_REAL_EXPRESSIONS = {
    **{name: f"{name}({{0}})" for name in _SAME_NAME_FUNCTIONS},
    **{f"arc{name}": f"a{name}({{0}})" for name in _INVERTIBLE_NAMES},
    **{name: f"{c}({{0}}, {{1}})" for name, c in (*_TWO_OPERAND_NAMES.items(), ("copysign", "copysign"))},
    "divide": "{0} / {1}",
    "power": "pow({0}, {1})",
    "float_power": "pow({0}, {1})",
    "reciprocal": "1 / {0}",
    "absolute": "fabs({0})",
    "remainder": "_real_remainder({0}, {1})",
    "floor_divide": "_real_floor_divide({0}, {1})",
    "isnan": "{0} != {0}",
    "isinf": "isinf({0})",
    "isfinite": "isfinite({0})",
    "signbit": "signbit({0})",
    "deg2rad": "{0} * 0.017453292519943295",
    "radians": "{0} * 0.017453292519943295",
    "rad2deg": "{0} * 57.29577951308232",
    "degrees": "{0} * 57.29577951308232",
}
_INTEGER_EXPRESSIONS = {
    "absolute": "{0} < 0 ? -{0} : {0}",
    "floor_divide": "_floor_divide({0}, {1})",
    "remainder": "_remainder({0}, {1})",
    "power": "_power({0}, {1})",
    "left_shift": "_left_shift({0}, {1})",
    "right_shift": "_right_shift({0}, {1})",
    "bitwise_and": "{0} & {1}",
    "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}",
    "invert": "~{0}",
    "fmax": "{0} > {1} ? {0} : {1}",
    "fmin": "{0} < {1} ? {0} : {1}",
    **dict.fromkeys(("floor", "ceil", "trunc", "rint"), "{0}"),
    "isnan": "{0} != {0}",
    "isinf": "{0} != {0}",
    "isfinite": "{0} == {0}",
}
_BOOL_EXPRESSIONS = {
    "add": "{0} || {1}",
    "multiply": "{0} && {1}",
    "bitwise_and": "{0} && {1}",
    "bitwise_or": "{0} || {1}",
    "bitwise_xor": "{0} != {1}",
    "invert": "!{0}",
    "absolute": "{0}",
    **dict.fromkeys(("floor", "ceil", "trunc"), "{0}"),
    "isnan": "{0} != {0}",
    "isinf": "{0} != {0}",
    "isfinite": "{0} == {0}",
}
_COMPLEX_EXPRESSIONS = {
    "divide": "{0} / {1}",
    "absolute": "abs({0})",
    "conjugate": "conj({0})",
    "exp": "exp({0})",
    "log": "log({0})",
    "sqrt": "sqrt({0})",
}
_EXPRESSIONS_BY_KIND: dict[str, dict[str, str]] = {
    "f": {**_ANY_TYPE_EXPRESSIONS, **_NUMBER_EXPRESSIONS, **_ORDERED_EXPRESSIONS, **_REAL_EXPRESSIONS},
    "i": {**_ANY_TYPE_EXPRESSIONS, **_NUMBER_EXPRESSIONS, **_ORDERED_EXPRESSIONS, **_INTEGER_EXPRESSIONS},
    "u": {
        **_ANY_TYPE_EXPRESSIONS,
        **_NUMBER_EXPRESSIONS,
        **_ORDERED_EXPRESSIONS,
        **_INTEGER_EXPRESSIONS,
        "absolute": "{0}",
    },
    "b": {**_ANY_TYPE_EXPRESSIONS, **_ORDERED_EXPRESSIONS, **_BOOL_EXPRESSIONS},
    "c": {**_ANY_TYPE_EXPRESSIONS, **_NUMBER_EXPRESSIONS, **_COMPLEX_EXPRESSIONS},
}


def find_expression(function: np.ufunc, dtype: np.dtype[Any]) -> str | None:
    """Return the C++ expression that implements a NumPy function for one dtype, or None."""
    return _EXPRESSIONS_BY_KIND[dtype.kind].get(function.__name__)
