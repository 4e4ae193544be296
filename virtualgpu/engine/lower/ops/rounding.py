"""Floating-point operations rounded toward zero, down or up, by the processor's own rounding modes."""

from __future__ import annotations

from virtualgpu.engine.ir.emit import INTRINSIC_SUFFIX, vector
from virtualgpu.engine.lower.warp_code import WarpCode

# PTX's rounding modes as `llvm.set.rounding` numbers them; 1 is to nearest, the mode everything else runs in.
_MODES = {"rz": 0, "rp": 2, "rm": 3}
_CONVERSIONS = ("fptrunc", "sitofp", "uitofp")


def directed(c: WarpCode, operation: str, mode: str, target: str, source: str, *values: str) -> str:
    """One rounded operation: an LLVM name such as ``fadd``, ``fma`` or ``sitofp``, and its LLVM types."""
    name = f"{operation}_{mode}_{source}_{target}"
    types = [target, source] if operation in _CONVERSIONS else [target]
    suffix = "".join(f".v32{INTRINSIC_SUFFIX.get(t, t)}" for t in types)
    intrinsic = f"llvm.experimental.constrained.{operation}{suffix}"
    kind, result = vector(source), vector(target)
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
