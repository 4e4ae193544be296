"""LLVM IR functions that multiply matrix fragments, one for each shape and set of types.

It unpacks the registers of a warp into whole matrices of doubles. Integers are multiplied and added exactly.
Floats are added as an H200's tensor cores add them, bit for bit (found by comparing rules with 3 million
recorded sums and with every kind of special number; `tests/engine/test_tensor_core_bits.py`):

- products are exact, and no sum is rounded before the last one;
- all products of an instruction and the accumulator are cut, towards 0, after the `KEPT_MANTISSA_BITS`-th bit after
  the first bit of the largest one. The largest is determined by the sum of the factors' exponents, not by the
  product itself;
- their sum is exact, and cut to FP32, towards 0 (rounded to the nearest where D is FP16); a sum of
  zeros only is +0, whatever their signs;
- ``mma`` of FP8 is two FP16 instructions, each with two elements of every four, the second with the first
  one's sum, and then an ordinary rounded addition of the accumulator. (``wgmma`` of FP8, which is not
  implemented here, keeps 13 bits after the first: notebook 13 has the record.)

Other architectures cut elsewhere (Ampere keeps a bit less, of half as many products: Fasi et al., *Numerical
behavior of NVIDIA tensor cores*, PeerJ Comput. Sci. 7:e330, 2021); here all do as the H200 does.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from virtualgpu.engine.ir.text import make_odd_rounding
from virtualgpu.engine.lower.fragment_places import ROW_BYTES

ElementPositions = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
HALF_TYPES = ("f16", "bf16")
BYTE_TYPES = ("s8", "u8")
FP8_TYPES = ("e4m3", "e5m2")
KEPT_MANTISSA_BITS = 25
# The exponent of subnormal numbers of a type.
_LEAST_EXPONENT = {"f16": -14, "bf16": -126, "tf32": -126, "f32": -126, "e4m3": -14, "e5m2": -14}


def count_per_register(element_type: str) -> int:
    """Return the number of elements of a type that one register contains."""
    if element_type in (*BYTE_TYPES, *FP8_TYPES):
        return 4
    return 2 if element_type in HALF_TYPES else 1


def _make_offset_table(
    name: str, element_positions: ElementPositions, column_count: int, count: int, element_type: str
) -> str:
    """Return an LLVM constant with the byte offset of each matrix element in the warp's registers."""
    offsets = np.zeros(count, np.int64)
    lane_index = np.arange(32)[:, None]
    element_index = np.arange(element_positions[0].shape[1])
    elements_per_register = count_per_register(element_type)
    byte_offsets = (
        element_index // elements_per_register * ROW_BYTES
        + lane_index * 4
        + element_index % elements_per_register * (4 // elements_per_register)
    )
    offsets[element_positions[0] * column_count + element_positions[1]] = byte_offsets
    offset_list = ", ".join(f"i32 {offset}" for offset in offsets.tolist())
    return f"@{name} = internal constant [{count} x i32] [{offset_list}]\n"


# Text that converts %bits, an element as it is stored in its register, to %value.
_WIDEN_TEXTS = {
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
_NARROWING_TEXTS = {
    "f32": "  %float = fptrunc double %sum to float\n  %bits = bitcast float %float to i32\n",
    # Sums of integers are exact in a double; they wrap around, or stay within 32 bits.
    "s32": "  %whole = fptosi double %sum to i64\n  %bits = trunc i64 %whole to i32\n",
    "s32.satfinite": "  %bits = call i32 @llvm.fptosi.sat.i32.f64(double %sum)\n",
    "f16": f"""{make_odd_rounding("%sum", "%odd")}  %half = fptrunc float %odd to half
  %code = bitcast half %half to i16
  %lost = fcmp uno double %sum, %sum
  %bits = select i1 %lost, i16 32767, i16 %code
""",
}


def _make_element_loop(
    name: str, element_count: int, offset_table: str, body_text: str, arguments: str
) -> str:
    """Return an LLVM function that runs `body_text` for each matrix element.

    `body_text` can use the index ``%i`` and the ``%offset`` of the element in the table.
    """
    return f"""
define internal void @{name}({arguments}) noinline {{
entry:
  br label %loop
loop:
  %i = phi i32 [0, %entry], [%i1, %loop]
  %at = getelementptr [{element_count} x i32], ptr @{offset_table}, i32 0, i32 %i
  %offset = load i32, ptr %at
{body_text}  %i1 = add i32 %i, 1
  %more = icmp ult i32 %i1, {element_count}
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


def _make_unpack_function(name: str, count: int, offset_table: str, element_type: str) -> str:
    llvm_type = f"i{32 // count_per_register(element_type)}"
    element_text = (
        f"  %p = getelementptr i8, ptr %registers, i32 %offset\n  %bits = load {llvm_type}, ptr %p\n"
        f"{_WIDEN_TEXTS[element_type]}"
        "  %to = getelementptr double, ptr %matrix, i32 %i\n  store double %value, ptr %to\n"
    )
    return _make_element_loop(name, count, offset_table, element_text, "ptr %registers, ptr %matrix")


def _make_pack_function(name: str, count: int, offset_table: str, element_type: str) -> str:
    llvm_type = f"i{32 // count_per_register(element_type)}"
    element_text = (
        "  %from = getelementptr double, ptr %matrix, i32 %i\n  %sum = load double, ptr %from\n"
        f"{_NARROWING_TEXTS[element_type]}"
        f"  %p = getelementptr i8, ptr %registers, i32 %offset\n  store {llvm_type} %bits, ptr %p\n"
    )
    return _make_element_loop(name, count, offset_table, element_text, "ptr %matrix, ptr %registers")


def _make_product_loop(
    name: str, previous_label: str, count: int, start: int, row_type: str, phi_text: str, body_text: str
) -> str:
    """Return LLVM text of a loop over the products of a sum, starting at index `start`.

    ``%{name}.j`` is the index, and `phi_text` contains the phi instructions of the loop.

    `body_text` can use the factors ``%{name}.xs`` (one of A in all lanes) and ``%{name}.ys``. It leaves the values
    for the next iteration in the names of the phis, followed by ``1``.
    """
    return f"""  br label %{name}
{name}:
  %{name}.j = phi i32 [{start}, %{previous_label}], [%{name}.j1, %{name}]
{phi_text}  %{name}.place = add i32 %left, %{name}.j
  %{name}.xp = getelementptr double, ptr %am, i32 %{name}.place
  %{name}.x = load double, ptr %{name}.xp
  %{name}.x0 = insertelement {row_type} poison, double %{name}.x, i32 0
  %{name}.xs = shufflevector {row_type} %{name}.x0, {row_type} poison, <{row_type[1:-1].split()[0]} x i32> zeroinitializer
  %{name}.yp = getelementptr {row_type}, ptr %bm, i32 %{name}.j
  %{name}.ys = load {row_type}, ptr %{name}.yp, align 64
{body_text}  %{name}.j1 = add i32 %{name}.j, 1
  %{name}.again = icmp ult i32 %{name}.j1, {start + count}
  br i1 %{name}.again, label %{name}, label %{name}.done
{name}.done:
"""


def _make_exact_sum(column_count: int, inner_length: int) -> str:
    """Return LLVM text that sets ``%total`` to the exact sum of the products in a row."""
    row_type = f"<{column_count} x double>"
    step_text = f"  %terms = fmul contract {row_type} %step.xs, %step.ys\n  %sum1 = fadd contract {row_type} %sum, %terms\n"
    phi_text = f"  %sum = phi {row_type} [zeroinitializer, %row], [%sum1, %step]\n"
    return (
        _make_product_loop("step", "row", inner_length, 0, row_type, phi_text, step_text)
        + f"  %total = fadd {row_type} %sum1, %cs\n"
    )


def _make_splat_constant(value: float) -> str:
    """Return an LLVM vector constant with `value` in every element."""
    return f"splat (double 0x{np.float64(value).view(np.uint64):016X})"


def _make_exponent_extraction(column_count: int, value: str, result: str, element_type: str) -> str:
    """Return LLVM text that replaces each double by the power of two with the same exponent, at most 2**200.

    The result for 0 is 0.
    """
    row_type = f"<{column_count} x double>"
    integer_type = f"<{column_count} x i64>"
    least_power = _make_splat_constant(2.0 ** _LEAST_EXPONENT[element_type])
    return f"""  {result}.b = bitcast {row_type} {value} to {integer_type}
  {result}.e = and {integer_type} {result}.b, splat (i64 {0x7FF << 52})
  {result}.p = bitcast {integer_type} {result}.e to {row_type}
  {result}.l = call {row_type} @llvm.maxnum.v{column_count}f64({row_type} {result}.p, {row_type} {least_power})
  {result}.u = call {row_type} @llvm.minnum.v{column_count}f64({row_type} {result}.l, {row_type} {_make_splat_constant(2.0**200)})
  {result}.z = fcmp oeq {row_type} {value}, zeroinitializer
  {result} = select <{column_count} x i1> {result}.z, {row_type} zeroinitializer, {row_type} {result}.u
"""


def _make_truncated_sum(column_count: int, inner_length: int, types_by_matrix: dict[str, str]) -> str:
    """Return LLVM text that sets ``%total`` to the sum of a row, with terms truncated as in tensor cores."""
    row_type = f"<{column_count} x double>"
    float_type = f"<{column_count} x float>"
    is_fp8 = types_by_matrix["a"] in FP8_TYPES
    term_groups = ((0, 16), (16, 16)) if is_fp8 else ((0, inner_length),)
    llvm_text = ""
    accumulator_name = "%cs"
    previous_label = "row"
    sum_type = types_by_matrix["c"]
    if is_fp8:
        accumulator_name = "zeroinitializer"
        sum_type = "f32"
    for group_index, (first_term, term_count) in enumerate(term_groups):
        if is_fp8 and not group_index:
            llvm_text += f"  %c0 = fadd {row_type} zeroinitializer, zeroinitializer\n"
            accumulator_name = "%c0"
        max_label = f"top{group_index}"
        sum_label = f"sum{group_index}"
        llvm_text += _make_exponent_extraction(column_count, accumulator_name, f"%{max_label}.c", sum_type)
        step_text = (
            _make_exponent_extraction(
                column_count, f"%{max_label}.xs", f"%{max_label}.px", types_by_matrix["a"]
            )
            + _make_exponent_extraction(
                column_count, f"%{max_label}.ys", f"%{max_label}.py", types_by_matrix["b"]
            )
            + f"  %{max_label}.pp = fmul {row_type} %{max_label}.px, %{max_label}.py\n"
            f"  %{max_label}.m1 = call {row_type} @llvm.maxnum.v{column_count}f64({row_type} %{max_label}.m, {row_type} %{max_label}.pp)\n"
        )
        phi_text = f"  %{max_label}.m = phi {row_type} [%{max_label}.c, %{previous_label}], [%{max_label}.m1, %{max_label}]\n"
        llvm_text += _make_product_loop(
            max_label, previous_label, term_count, first_term, row_type, phi_text, step_text
        )
        # One where all is 0.
        llvm_text += f"""  %{max_label}.most = call {row_type} @llvm.maxnum.v{column_count}f64({row_type} %{max_label}.m1, {row_type} {_make_splat_constant(2.0**-400)})
  %{max_label}.unit = fmul {row_type} %{max_label}.most, {_make_splat_constant(2.0**-KEPT_MANTISSA_BITS)}
  %{max_label}.per = fdiv {row_type} {_make_splat_constant(1.0)}, %{max_label}.unit
  %{max_label}.cu = fmul {row_type} {accumulator_name}, %{max_label}.per
  %{max_label}.ct = call {row_type} @llvm.trunc.v{column_count}f64({row_type} %{max_label}.cu)
  %{max_label}.begin = fadd {row_type} %{max_label}.ct, zeroinitializer
"""
        step_text = (
            f"  %{sum_label}.xy = fmul {row_type} %{sum_label}.xs, %{sum_label}.ys\n"
            f"  %{sum_label}.u = fmul {row_type} %{sum_label}.xy, %{max_label}.per\n"
            f"  %{sum_label}.t = call {row_type} @llvm.trunc.v{column_count}f64({row_type} %{sum_label}.u)\n"
            f"  %{sum_label}.s1 = fadd {row_type} %{sum_label}.s, %{sum_label}.t\n"
        )
        phi_text = f"  %{sum_label}.s = phi {row_type} [%{max_label}.begin, %{max_label}.done], [%{sum_label}.s1, %{sum_label}]\n"
        llvm_text += _make_product_loop(
            sum_label, f"{max_label}.done", term_count, first_term, row_type, phi_text, step_text
        )
        llvm_text += f"  %{sum_label}.exact = fmul {row_type} %{sum_label}.s1, %{max_label}.unit\n"
        accumulator_name = f"%{sum_label}.exact"
        previous_label = f"{sum_label}.done"
        sum_type = "f32"
        if types_by_matrix["d"] == "f32":
            llvm_text += _make_truncation_to_float(column_count, accumulator_name, f"%{sum_label}.cut")
            accumulator_name = f"%{sum_label}.cut"
    if not is_fp8:
        return llvm_text + f"  %total = fadd {row_type} {accumulator_name}, {_make_splat_constant(-0.0)}\n"
    return (
        llvm_text
        + f"""  %d1 = fptrunc {row_type} {accumulator_name} to {float_type}
  %c1 = fptrunc {row_type} %cs to {float_type}
  %added = fadd {float_type} %d1, %c1
  %lost = fcmp uno {float_type} %added, %added
  %told = select <{column_count} x i1> %lost, {float_type} splat (float 0x7FFFFFFFE0000000), {float_type} %added
  %total = fpext {float_type} %told to {row_type}
"""
    )


def _make_truncation_to_float(column_count: int, value: str, result: str) -> str:
    """Return LLVM text that sets `result` to doubles, rounded towards 0 to the precision of floats.

    Numbers that are too large become infinite.
    """
    row_type = f"<{column_count} x double>"
    float_type = f"<{column_count} x float>"
    word_type = f"<{column_count} x i32>"
    return f"""  {result}.f = fptrunc {row_type} {value} to {float_type}
  {result}.w = fpext {float_type} {result}.f to {row_type}
  {result}.a = call {row_type} @llvm.fabs.v{column_count}f64({row_type} {value})
  {result}.r = call {row_type} @llvm.fabs.v{column_count}f64({row_type} {result}.w)
  {result}.up = fcmp ogt {row_type} {result}.r, {result}.a
  {result}.in = fcmp olt {row_type} {result}.a, {_make_splat_constant(2.0**128)}
  {result}.do = and <{column_count} x i1> {result}.up, {result}.in
  {result}.b = bitcast {float_type} {result}.f to {word_type}
  {result}.d = sub {word_type} {result}.b, splat (i32 1)
  {result}.s = select <{column_count} x i1> {result}.do, {word_type} {result}.d, {word_type} {result}.b
  {result}.q = bitcast {word_type} {result}.s to {float_type}
  {result}.n = fcmp uno {float_type} {result}.q, {result}.q
  {result}.c = select <{column_count} x i1> {result}.n, {float_type} splat (float 0x7FFFFFFFE0000000), {float_type} {result}.q
  {result} = fpext {float_type} {result}.c to {row_type}
"""


def make_matrix_product(
    name: str,
    shape: tuple[int, int, int],
    positions_by_matrix: dict[str, ElementPositions],
    types_by_matrix: dict[str, str],
    register_count: int,
) -> str:
    """Return LLVM text of a function that computes D = A x B + C for the matrix fragments of one warp.

    The function has the signature ``void @name(i32 mask, ptr d, ptr a, ptr b, ptr c)``.

    Parameters
    ----------
    name
        Name of the function.
    shape
        m, n and k.
    positions_by_matrix
        For a, b, c and d the row and column of every lane's elements, each of shape (32, elements).
    types_by_matrix
        For a, b, c and d the type of their elements.
    register_count
        Number of registers that hold D in each lane; only those of lanes in the mask are written.
    """
    m, n, k = shape
    llvm_text = ""
    for matrix_name, column_count, element_count in (
        ("a", k, m * k),
        ("b", n, k * n),
        ("c", n, m * n),
        ("d", n, m * n),
    ):
        element_type = types_by_matrix[matrix_name]
        llvm_text += _make_offset_table(
            f"{name}.{matrix_name}",
            positions_by_matrix[matrix_name],
            column_count,
            element_count,
            element_type,
        )
        make_copy_loop = _make_pack_function if matrix_name == "d" else _make_unpack_function
        llvm_text += make_copy_loop(
            f"{name}.{matrix_name}.each", element_count, f"{name}.{matrix_name}", element_type
        )
    row_type = f"<{n} x double>"
    merge_text = "".join(
        f"  %from{register_index} = getelementptr i8, ptr %packed, i64 {ROW_BYTES * register_index}\n"
        f"  %row{register_index} = load <32 x i32>, ptr %from{register_index}, align 64\n"
        f"  %to{register_index} = getelementptr i8, ptr %d, i64 {ROW_BYTES * register_index}\n"
        f"  call void @llvm.masked.store.v32i32.p0(<32 x i32> %row{register_index}, ptr align 64 %to{register_index}, "
        "<32 x i1> %lanes)\n"
        for register_index in range(register_count)
    )
    for intrinsic in () if types_by_matrix["a"] in BYTE_TYPES else ("fabs", "trunc", "maxnum", "minnum"):
        second_operand = "" if intrinsic in ("fabs", "trunc") else f", {row_type}"
        llvm_text += f"declare {row_type} @llvm.{intrinsic}.v{n}f64({row_type}{second_operand})\n"
    return f"""{llvm_text}
declare void @llvm.masked.store.v32i32.p0(<32 x i32>, ptr, <32 x i1>)
define internal void @{name}(i32 %mask, ptr %d, ptr %a, ptr %b, ptr %c) noinline {{
entry:
  %am = alloca [{m * k} x double], align 64
  %bm = alloca [{k * n} x double], align 64
  %cm = alloca [{m * n} x double], align 64
  %packed = alloca [{register_count} x <32 x i32>], align 64
  call void @{name}.a.each(ptr %a, ptr %am)
  call void @{name}.b.each(ptr %b, ptr %bm)
  call void @{name}.c.each(ptr %c, ptr %cm)
  br label %row
row:
  %i = phi i32 [0, %entry], [%i1, %stored]
  %left = mul i32 %i, {k}
  %cp = getelementptr {row_type}, ptr %cm, i32 %i
  %cs = load {row_type}, ptr %cp, align 64
{_make_exact_sum(n, k) if types_by_matrix["a"] in BYTE_TYPES else _make_truncated_sum(n, k, types_by_matrix)}
  store {row_type} %total, ptr %cp, align 64
  br label %stored
stored:
  %i1 = add i32 %i, 1
  %next = icmp ult i32 %i1, {m}
  br i1 %next, label %row, label %finish
finish:
  call void @{name}.d.each(ptr %cm, ptr %packed)
  %lanes = bitcast i32 %mask to <32 x i1>
{merge_text}  ret void
}}
"""
