"""The product of matrix fragments, as an LLVM IR function for each shape and each set of types.

It unpacks the registers of a warp into whole matrices of doubles. Integers are multiplied and added exactly.
Floats are added as an H200's tensor cores add them, bit for bit (found by comparing rules with 3 million
recorded sums and with every kind of special number; `tests/engine/test_tensor_core_bits.py`):

- products are exact, and no sum is rounded before the last one;
- all products of an instruction and the accumulator are cut, towards 0, behind the `KEPT_BITS`-th bit after
  the largest one's first. Which is the largest, exponents of the factors say, added, not the product itself;
- what they add up to is exact, and cut to FP32, towards 0 (rounded to the nearest where D is FP16); a sum of
  nothing but zeros is +0, whatever their signs;
- ``mma`` of FP8 is two FP16 instructions, each with two elements of every four, the second with the first
  one's sum, and then an addition of the accumulator, rounded as any. (``wgmma`` of FP8, which is not here,
  keeps 13 bits behind the first: notebook 13 has the record.)

Other architectures cut elsewhere (Ampere keeps a bit less, of half as many products: Fasi et al., *Numerical
behavior of NVIDIA tensor cores*, PeerJ Comput. Sci. 7:e330, 2021); here all do as the H200 does.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from virtualgpu.engine.ir.text import odd_single
from virtualgpu.engine.lower.fragment_places import ROW_BYTES

Places = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
HALVES = ("f16", "bf16")
BYTES = ("s8", "u8")
EIGHTHS = ("e4m3", "e5m2")
KEPT_BITS = 25
# The exponent of subnormal numbers of a type.
_LEAST_EXPONENT = {"f16": -14, "bf16": -126, "tf32": -126, "f32": -126, "e4m3": -14, "e5m2": -14}


def packed(kind: str) -> int:
    """Elements of a type that one register holds."""
    return 4 if kind in (*BYTES, *EIGHTHS) else 2 if kind in HALVES else 1


def _table(name: str, places: Places, columns: int, count: int, kind: str) -> str:
    """A constant: for each element of the matrix the byte offset of the register part that holds it."""
    offsets = np.zeros(count, np.int64)
    lane = np.arange(32)[:, None]
    n = np.arange(places[0].shape[1])
    per = packed(kind)
    bytes_ = n // per * ROW_BYTES + lane * 4 + n % per * (4 // per)
    offsets[places[0] * columns + places[1]] = bytes_
    values = ", ".join(f"i32 {v}" for v in offsets.tolist())
    return f"@{name} = internal constant [{count} x i32] [{values}]\n"


# %bits is an element as it lies in its register; each makes %value of it.
_WIDEN = {
    "f16": "  %half = bitcast i16 %bits to half\n  %float = fpext half %half to float\n"
    "  %value = fpext float %float to double\n",
    "bf16": (
        "  %wide = zext i16 %bits to i32\n  %high = shl i32 %wide, 16\n"
        "  %float = bitcast i32 %high to float\n  %value = fpext float %float to double\n"
    ),
    "tf32": (
        "  %kept = and i32 %bits, -8192\n"
        "  %float = bitcast i32 %kept to float\n  %value = fpext float %float to double\n"
    ),
    "f32": "  %float = bitcast i32 %bits to float\n  %value = fpext float %float to double\n",
    # E5M2 is the upper byte of a half; E4M3 has a bias 8 smaller, and NaN where its fraction is all ones.
    "e5m2": "  %wide = zext i8 %bits to i16\n  %high = shl i16 %wide, 8\n  %half = bitcast i16 %high to half\n"
    "  %float = fpext half %half to float\n  %value = fpext float %float to double\n",
    "e4m3": "  %wide = zext i8 %bits to i16\n  %size = and i16 %wide, 127\n  %low = shl i16 %size, 7\n"
    "  %sign = and i16 %wide, 128\n  %high = shl i16 %sign, 8\n  %code = or i16 %low, %high\n"
    "  %half = bitcast i16 %code to half\n  %float = fpext half %half to float\n"
    "  %near = fmul float %float, 256.0\n  %none = icmp eq i16 %size, 127\n"
    "  %told = select i1 %none, float 0x7FF8000000000000, float %near\n"
    "  %value = fpext float %told to double\n",
    "s8": "  %value = sitofp i8 %bits to double\n",
    "u8": "  %value = uitofp i8 %bits to double\n",
    "s32": "  %value = sitofp i32 %bits to double\n",
}
_NARROW = {
    "f32": "  %float = fptrunc double %sum to float\n  %bits = bitcast float %float to i32\n",
    # Sums of integers are exact in a double; they wrap around, or stay within 32 bits.
    "s32": "  %whole = fptosi double %sum to i64\n  %bits = trunc i64 %whole to i32\n",
    "s32.satfinite": "  %bits = call i32 @llvm.fptosi.sat.i32.f64(double %sum)\n",
    "f16": f"""{odd_single("%sum", "%odd")}  %half = fptrunc float %odd to half
  %code = bitcast half %half to i16
  %lost = fcmp uno double %sum, %sum
  %bits = select i1 %lost, i16 32767, i16 %code
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
    llvm = f"i{32 // packed(kind)}"
    inside = (
        f"  %p = getelementptr i8, ptr %registers, i32 %offset\n  %bits = load {llvm}, ptr %p\n"
        f"{_WIDEN[kind]}"
        "  %to = getelementptr double, ptr %matrix, i32 %i\n  store double %value, ptr %to\n"
    )
    return _step(name, count, table, inside, "ptr %registers, ptr %matrix")


def _pack(name: str, count: int, table: str, kind: str) -> str:
    llvm = f"i{32 // packed(kind)}"
    inside = (
        "  %from = getelementptr double, ptr %matrix, i32 %i\n  %sum = load double, ptr %from\n"
        f"{_NARROW[kind]}"
        f"  %p = getelementptr i8, ptr %registers, i32 %offset\n  store {llvm} %bits, ptr %p\n"
    )
    return _step(name, count, table, inside, "ptr %matrix, ptr %registers")


def _loop(name: str, before: str, count: int, first: int, row: str, values: str, inside: str) -> str:
    """A loop over products from `first` on; ``%{name}.j`` is the place; `values` are carried along.

    `inside` has the factors ``%{name}.xs`` (one of A in all lanes) and ``%{name}.ys``, and leaves what the next
    turn begins with in the names of `values`, followed by ``1``.
    """
    return f"""  br label %{name}
{name}:
  %{name}.j = phi i32 [{first}, %{before}], [%{name}.j1, %{name}]
{values}  %{name}.place = add i32 %left, %{name}.j
  %{name}.xp = getelementptr double, ptr %am, i32 %{name}.place
  %{name}.x = load double, ptr %{name}.xp
  %{name}.x0 = insertelement {row} poison, double %{name}.x, i32 0
  %{name}.xs = shufflevector {row} %{name}.x0, {row} poison, <{row[1:-1].split()[0]} x i32> zeroinitializer
  %{name}.yp = getelementptr {row}, ptr %bm, i32 %{name}.j
  %{name}.ys = load {row}, ptr %{name}.yp, align 64
{inside}  %{name}.j1 = add i32 %{name}.j, 1
  %{name}.again = icmp ult i32 %{name}.j1, {first + count}
  br i1 %{name}.again, label %{name}, label %{name}.done
{name}.done:
"""


def _whole_sum(n: int, k: int) -> str:
    """Text that leaves the exact sum of a row in ``%total``."""
    row = f"<{n} x double>"
    inside = (
        f"  %terms = fmul contract {row} %step.xs, %step.ys\n  %sum1 = fadd contract {row} %sum, %terms\n"
    )
    carried = f"  %sum = phi {row} [zeroinitializer, %row], [%sum1, %step]\n"
    return _loop("step", "row", k, 0, row, carried, inside) + f"  %total = fadd {row} %sum1, %cs\n"


def _splat(value: float) -> str:
    """A constant, n times."""
    return f"splat (double 0x{np.float64(value).view(np.uint64):016X})"


def _power(n: int, value: str, result: str, kind: str) -> str:
    """Text that leaves two to the power of the exponents of doubles in `result`: 0 of 0, at most 2**200."""
    row = f"<{n} x double>"
    bits = f"<{n} x i64>"
    least = _splat(2.0 ** _LEAST_EXPONENT[kind])
    return f"""  {result}.b = bitcast {row} {value} to {bits}
  {result}.e = and {bits} {result}.b, splat (i64 {0x7FF << 52})
  {result}.p = bitcast {bits} {result}.e to {row}
  {result}.l = call {row} @llvm.maxnum.v{n}f64({row} {result}.p, {row} {least})
  {result}.u = call {row} @llvm.minnum.v{n}f64({row} {result}.l, {row} {_splat(2.0**200)})
  {result}.z = fcmp oeq {row} {value}, zeroinitializer
  {result} = select <{n} x i1> {result}.z, {row} zeroinitializer, {row} {result}.u
"""


def _cut_sum(n: int, k: int, kinds: dict[str, str]) -> str:
    """Text that leaves a row's sum, as tensor cores make it, in ``%total``."""
    row = f"<{n} x double>"
    singles = f"<{n} x float>"
    bytes_ = kinds["a"] in EIGHTHS
    groups = ((0, 16), (16, 16)) if bytes_ else ((0, k),)
    text = ""
    held = "%cs"
    before = "row"
    kind = kinds["c"]
    if bytes_:
        held = "zeroinitializer"
        kind = "f32"
    for number, (first, count) in enumerate(groups):
        if bytes_ and not number:
            text += f"  %c0 = fadd {row} zeroinitializer, zeroinitializer\n"
            held = "%c0"
        top = f"top{number}"
        sum_ = f"sum{number}"
        text += _power(n, held, f"%{top}.c", kind)
        inside = (
            _power(n, f"%{top}.xs", f"%{top}.px", kinds["a"])
            + _power(n, f"%{top}.ys", f"%{top}.py", kinds["b"])
            + f"  %{top}.pp = fmul {row} %{top}.px, %{top}.py\n"
            f"  %{top}.m1 = call {row} @llvm.maxnum.v{n}f64({row} %{top}.m, {row} %{top}.pp)\n"
        )
        carried = f"  %{top}.m = phi {row} [%{top}.c, %{before}], [%{top}.m1, %{top}]\n"
        text += _loop(top, before, count, first, row, carried, inside)
        # One where all is 0.
        text += f"""  %{top}.most = call {row} @llvm.maxnum.v{n}f64({row} %{top}.m1, {row} {_splat(2.0**-400)})
  %{top}.unit = fmul {row} %{top}.most, {_splat(2.0**-KEPT_BITS)}
  %{top}.per = fdiv {row} {_splat(1.0)}, %{top}.unit
  %{top}.cu = fmul {row} {held}, %{top}.per
  %{top}.ct = call {row} @llvm.trunc.v{n}f64({row} %{top}.cu)
  %{top}.begin = fadd {row} %{top}.ct, zeroinitializer
"""
        inside = (
            f"  %{sum_}.xy = fmul {row} %{sum_}.xs, %{sum_}.ys\n"
            f"  %{sum_}.u = fmul {row} %{sum_}.xy, %{top}.per\n"
            f"  %{sum_}.t = call {row} @llvm.trunc.v{n}f64({row} %{sum_}.u)\n"
            f"  %{sum_}.s1 = fadd {row} %{sum_}.s, %{sum_}.t\n"
        )
        carried = f"  %{sum_}.s = phi {row} [%{top}.begin, %{top}.done], [%{sum_}.s1, %{sum_}]\n"
        text += _loop(sum_, f"{top}.done", count, first, row, carried, inside)
        text += f"  %{sum_}.exact = fmul {row} %{sum_}.s1, %{top}.unit\n"
        held = f"%{sum_}.exact"
        before = f"{sum_}.done"
        kind = "f32"
        if kinds["d"] == "f32":
            text += _cut_to_single(n, held, f"%{sum_}.cut")
            held = f"%{sum_}.cut"
    if not bytes_:
        return text + f"  %total = fadd {row} {held}, {_splat(-0.0)}\n"
    return (
        text
        + f"""  %d1 = fptrunc {row} {held} to {singles}
  %c1 = fptrunc {row} %cs to {singles}
  %added = fadd {singles} %d1, %c1
  %lost = fcmp uno {singles} %added, %added
  %told = select <{n} x i1> %lost, {singles} splat (float 0x7FFFFFFFE0000000), {singles} %added
  %total = fpext {singles} %told to {row}
"""
    )


def _cut_to_single(n: int, value: str, result: str) -> str:
    """Text that leaves doubles cut to floats, towards 0, in `result`: too large ones are infinite."""
    row = f"<{n} x double>"
    singles = f"<{n} x float>"
    words = f"<{n} x i32>"
    return f"""  {result}.f = fptrunc {row} {value} to {singles}
  {result}.w = fpext {singles} {result}.f to {row}
  {result}.a = call {row} @llvm.fabs.v{n}f64({row} {value})
  {result}.r = call {row} @llvm.fabs.v{n}f64({row} {result}.w)
  {result}.up = fcmp ogt {row} {result}.r, {result}.a
  {result}.in = fcmp olt {row} {result}.a, {_splat(2.0**128)}
  {result}.do = and <{n} x i1> {result}.up, {result}.in
  {result}.b = bitcast {singles} {result}.f to {words}
  {result}.d = sub {words} {result}.b, splat (i32 1)
  {result}.s = select <{n} x i1> {result}.do, {words} {result}.d, {words} {result}.b
  {result}.q = bitcast {words} {result}.s to {singles}
  {result}.n = fcmp uno {singles} {result}.q, {result}.q
  {result}.c = select <{n} x i1> {result}.n, {singles} splat (float 0x7FFFFFFFE0000000), {singles} {result}.q
  {result} = fpext {singles} {result}.c to {row}
"""


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
        text += _table(f"{name}.{part}", places[part], columns, count, kind)
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
    for each in () if kinds["a"] in BYTES else ("fabs", "trunc", "maxnum", "minnum"):
        two = "" if each in ("fabs", "trunc") else f", {row}"
        text += f"declare {row} @llvm.{each}.v{n}f64({row}{two})\n"
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
  %i = phi i32 [0, %entry], [%i1, %stored]
  %left = mul i32 %i, {k}
  %cp = getelementptr {row}, ptr %cm, i32 %i
  %cs = load {row}, ptr %cp, align 64
{_whole_sum(n, k) if kinds["a"] in BYTES else _cut_sum(n, k, kinds)}
  store {row} %total, ptr %cp, align 64
  br label %stored
stored:
  %i1 = add i32 %i, 1
  %next = icmp ult i32 %i1, {m}
  br i1 %next, label %row, label %finish
finish:
  call void @{name}.d.each(ptr %cm, ptr %packed)
  %lanes = bitcast i32 %mask to <32 x i1>
{merge}  ret void
}}
"""
