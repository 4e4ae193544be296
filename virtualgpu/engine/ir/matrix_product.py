"""The product of matrix fragments, as an LLVM IR function for each shape and each set of types.

It unpacks the registers of a warp into whole matrices of doubles, multiplies them and rounds the sums
once: exact products of the rounded inputs, at least as accurate as the hardware's own order of sums.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from virtualgpu.engine.lower.fragment_places import ROW_BYTES

Places = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
HALVES = ("f16", "bf16")


def _table(name: str, places: Places, columns: int, count: int, packed: bool) -> str:
    """A constant: for each element of the matrix the byte offset of the register part that holds it."""
    offsets = np.zeros(count, np.int64)
    lane = np.arange(32)[:, None]
    n = np.arange(places[0].shape[1])
    bytes_ = n // 2 * ROW_BYTES + lane * 4 + n % 2 * 2 if packed else n * ROW_BYTES + lane * 4
    offsets[places[0] * columns + places[1]] = bytes_
    values = ", ".join(f"i32 {v}" for v in offsets.tolist())
    return f"@{name} = internal constant [{count} x i32] [{values}]\n"


# %bits is an element as it lies in its register; each makes %value of it.
_WIDEN = {
    "f16": "  %half = bitcast i16 %bits to half\n  %value = fpext half %half to double\n",
    "bf16": (
        "  %wide = zext i16 %bits to i32\n  %high = shl i32 %wide, 16\n"
        "  %float = bitcast i32 %high to float\n  %value = fpext float %float to double\n"
    ),
    "tf32": (
        "  %kept = and i32 %bits, -8192\n"
        "  %float = bitcast i32 %kept to float\n  %value = fpext float %float to double\n"
    ),
    "f32": "  %float = bitcast i32 %bits to float\n  %value = fpext float %float to double\n",
}
# The double is rounded to 24 bits, to odd, before it is rounded to half: only that rounding shows.
_NARROW = {
    "f32": "  %float = fptrunc double %sum to float\n  %bits = bitcast float %float to i32\n",
    "f16": """  %raw = bitcast double %sum to i64
  %low = and i64 %raw, 536870911
  %inexact = icmp ne i64 %low, 0
  %sticky = zext i1 %inexact to i64
  %odd = shl i64 %sticky, 29
  %high = and i64 %raw, -536870912
  %kept = or i64 %high, %odd
  %short = bitcast i64 %kept to double
  %float = fptrunc double %short to float
  %half = fptrunc float %float to half
  %bits = bitcast half %half to i16
""",
}


def _step(name: str, count: int, table: str, inside: str, arguments: str) -> str:
    """A function that does something for each element; `inside` has ``%i`` and ``%offset``."""
    return f"""
define internal void @{name}({arguments}) noinline {{
entry:
  br label %loop
loop:
  %i = phi i32 [0, %entry], [%i1, %loop]
  %at = getelementptr [{count} x i32], ptr @{table}, i32 0, i32 %i
  %offset = load i32, ptr %at
{inside}  %i1 = add i32 %i, 1
  %more = icmp ult i32 %i1, {count}
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


def _unpack(name: str, count: int, table: str, kind: str) -> str:
    llvm = "i16" if kind in HALVES else "i32"
    inside = (
        f"  %p = getelementptr i8, ptr %registers, i32 %offset\n  %bits = load {llvm}, ptr %p\n"
        f"{_WIDEN[kind]}"
        "  %to = getelementptr double, ptr %matrix, i32 %i\n  store double %value, ptr %to\n"
    )
    return _step(name, count, table, inside, "ptr %registers, ptr %matrix")


def _pack(name: str, count: int, table: str, kind: str) -> str:
    llvm = "i16" if kind in HALVES else "i32"
    inside = (
        "  %from = getelementptr double, ptr %matrix, i32 %i\n  %sum = load double, ptr %from\n"
        f"{_NARROW[kind]}"
        f"  %p = getelementptr i8, ptr %registers, i32 %offset\n  store {llvm} %bits, ptr %p\n"
    )
    return _step(name, count, table, inside, "ptr %matrix, ptr %registers")


def product(
    name: str,
    shape: tuple[int, int, int],
    places: dict[str, Places],
    kinds: dict[str, str],
    registers: int,
) -> str:
    """Text of ``void @name(i32 mask, ptr d, ptr a, ptr b, ptr c)``: D = A x B + C of one warp.

    Parameters
    ----------
    name
        Of the function.
    shape
        m, n and k.
    places
        For a, b, c and d the row and column of every lane's elements, each of shape (32, elements).
    kinds
        For a, b, c and d the type of their elements.
    registers
        That hold D in each lane; only those of lanes in the mask are written.
    """
    m, n, k = shape
    text = ""
    for part, columns, count in (("a", k, m * k), ("b", n, k * n), ("c", n, m * n), ("d", n, m * n)):
        kind = kinds[part]
        text += _table(f"{name}.{part}", places[part], columns, count, kind in HALVES)
        make = _pack if part == "d" else _unpack
        text += make(f"{name}.{part}.each", count, f"{name}.{part}", kind)
    row = f"<{n} x double>"
    merge = "".join(
        f"  %from{r} = getelementptr i8, ptr %packed, i64 {ROW_BYTES * r}\n"
        f"  %row{r} = load <32 x i32>, ptr %from{r}, align 64\n"
        f"  %to{r} = getelementptr i8, ptr %d, i64 {ROW_BYTES * r}\n"
        f"  call void @llvm.masked.store.v32i32.p0(<32 x i32> %row{r}, ptr align 64 %to{r}, "
        "<32 x i1> %lanes)\n"
        for r in range(registers)
    )
    return f"""{text}
declare void @llvm.masked.store.v32i32.p0(<32 x i32>, ptr, <32 x i1>)
define internal void @{name}(i32 %mask, ptr %d, ptr %a, ptr %b, ptr %c) noinline {{
entry:
  %am = alloca [{m * k} x double], align 64
  %bm = alloca [{k * n} x double], align 64
  %cm = alloca [{m * n} x double], align 64
  %packed = alloca [{registers} x <32 x i32>], align 64
  call void @{name}.a.each(ptr %a, ptr %am)
  call void @{name}.b.each(ptr %b, ptr %bm)
  call void @{name}.c.each(ptr %c, ptr %cm)
  br label %row
row:
  %i = phi i32 [0, %entry], [%i1, %summed]
  %left = mul i32 %i, {k}
  br label %step
step:
  %j = phi i32 [0, %row], [%j1, %step]
  %sum = phi {row} [zeroinitializer, %row], [%sum1, %step]
  %place = add i32 %left, %j
  %xp = getelementptr double, ptr %am, i32 %place
  %x = load double, ptr %xp
  %x0 = insertelement {row} poison, double %x, i32 0
  %xs = shufflevector {row} %x0, {row} poison, <{n} x i32> zeroinitializer
  %yp = getelementptr {row}, ptr %bm, i32 %j
  %ys = load {row}, ptr %yp, align 64
  %terms = fmul contract {row} %xs, %ys
  %sum1 = fadd contract {row} %sum, %terms
  %j1 = add i32 %j, 1
  %again = icmp ult i32 %j1, {k}
  br i1 %again, label %step, label %summed
summed:
  %cp = getelementptr {row}, ptr %cm, i32 %i
  %cs = load {row}, ptr %cp, align 64
  %total = fadd {row} %sum1, %cs
  store {row} %total, ptr %cp, align 64
  %i1 = add i32 %i, 1
  %next = icmp ult i32 %i1, {m}
  br i1 %next, label %row, label %finish
finish:
  call void @{name}.d.each(ptr %cm, ptr %packed)
  %lanes = bitcast i32 %mask to <32 x i1>
{merge}  ret void
}}
"""
