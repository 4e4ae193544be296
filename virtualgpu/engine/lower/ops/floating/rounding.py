"""Floating-point operations rounded toward zero, down or up, by the processor's own rounding modes."""

from __future__ import annotations

from virtualgpu.engine.ir.emit import INTRINSIC_SUFFIX, bits, constant, llvm_of, vector
from virtualgpu.engine.lower.warp_code import WarpCode

# PTX's rounding modes as `llvm.set.rounding` numbers them; 1 is to nearest, the mode everything else runs in.
_MODES = {"rz": 0, "rp": 2, "rm": 3}
_CONVERSIONS = ("fptrunc", "sitofp")


def directed(c: WarpCode, operation: str, mode: str, target: str, source: str, *values: str) -> str:
    """One rounded operation: an LLVM name such as ``fadd``, ``fma`` or ``sitofp``, and its LLVM types."""
    name = f"{operation}_{mode}_{source}_{target}"
    types = [target, source] if operation in _CONVERSIONS else [target]
    suffix = "".join(f".v32{INTRINSIC_SUFFIX.get(t, t)}" for t in types)
    intrinsic = f"llvm.experimental.constrained.{operation}{suffix}"
    kind = vector(source)
    result = vector(target)
    kinds = ", ".join([kind] * len(values))
    names = [f"%a{n}" for n in range(len(values))]
    given = ", ".join(f"{kind} {n}" for n in names)
    c.need(
        name,
        f"""
declare void @llvm.set.rounding(i32)
declare {result} @{intrinsic}({kinds}, metadata, metadata)
define internal {result} @{name}({given}) noinline strictfp {{
  call void @llvm.set.rounding(i32 {_MODES[mode]}) strictfp
  %r = call {result} @{intrinsic}({given}, metadata !"round.dynamic", metadata !"fpexcept.ignore") strictfp
  call void @llvm.set.rounding(i32 1) strictfp
  ret {result} %r
}}
""",
    )
    return c.e.op(f"call {result} @{name}({', '.join(f'{kind} {v}' for v in values)})")


def directed_whole(c: WarpCode, mode: str, target: str, kind: str, value: str) -> str:
    """Whole numbers of a PTX type as floats, rounded; of signed 64-bit ones, the only kind that is safe.

    Where a processor has no instruction for unsigned ones, LLVM adds and takes away a magic number, which
    leaves -0 of 0 when rounding down.
    """
    e = c.e
    whole = llvm_of(kind)
    if kind[0] == "s" or bits(whole) < 64:
        wide = e.cast(value, whole, "i64", kind[0] == "s")
        return directed(c, "sitofp", mode, target, "i64", wide)
    one = constant("i64", 1)
    large = e.compare("slt", "i64", value, constant("i64", 0))
    # Half of a large one with what that lost in its last bit rounds as the whole does.
    half = e.binary("or", "i64", e.binary("lshr", "i64", value, one), e.binary("and", "i64", value, one))
    rounded = directed(c, "sitofp", mode, target, "i64", e.select("i64", large, half, value))
    return e.select(target, large, e.binary("fadd", target, rounded, rounded), rounded)
