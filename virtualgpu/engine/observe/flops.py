"""Floating-point operations of an instruction: what rooflines and tables of peak rates count."""

from __future__ import annotations

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir import layout
from virtualgpu.engine.lower.ops.matrices import tensor

_ONE = ("add", "sub", "mul", "div", "rcp", "sqrt", "rsqrt", "sin", "cos", "ex2", "lg2", "tanh")
_TWO = ("fma", "mad")
_TYPES = {
    "f16": ("f16", 1),
    "f16x2": ("f16", 2),
    "bf16": ("bf16", 1),
    "bf16x2": ("bf16", 2),
    "f32": ("f32", 1),
    "f64": ("f64", 1),
}
_MATRIX_TYPES = ("f16", "bf16", "tf32")


def operations(i: ir.Instruction) -> tuple[str, int]:
    """The type that an instruction computes in and its operations a lane; none ("", 0) of most.

    A sum, product, quotient, root or function counts one, a multiply-add two, a pair of numbers twice that.
    Sums by atomics count, comparisons and conversions do not. A product of matrices, 2 m n k operations of a
    warp, is of its factors' type.
    """
    # As it is written: what ptxas fuses is one instruction here, whose product still stands before it.
    words = i.text.split()
    parts = (words[1] if words[0].startswith("@") else words[0]).rstrip(";").split(".")
    root = parts[0]
    if is_tensor(i):
        factors = tensor.types_of(i)[1]
        m, n, k = tensor.shape_of(i)
        return (factors, 2 * m * n * k // layout.LANES) if factors in _MATRIX_TYPES else ("", 0)
    kind, numbers = _TYPES.get(i.type, ("", 0))
    if root in ("atom", "red"):
        return (kind, numbers) if "add" in parts else ("", 0)
    each = 1 if root in _ONE else 2 if root in _TWO else 0
    return (kind, each * numbers) if each and kind else ("", 0)


def is_tensor(i: ir.Instruction) -> bool:
    """Whether tensor cores execute it."""
    return i.root in ("wmma", "mma") and "mma" in i.parts
