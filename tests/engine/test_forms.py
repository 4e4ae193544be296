"""Every modifier of an instruction is either executed or refused; none is ignored.

The walk puts each modifier of PTX at each position of each instruction that the virtual GPU has. An accepted
modifier must change the code that is generated, unless `SAME` gives a reason.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

import numpy as np
import pytest

from tests.engine.every_instruction import FAMILIES, kernel
from tests.engine.ptx_runner import apply
from virtualgpu.compile import nvrtc
from virtualgpu.compile.ptx import parser
from virtualgpu.engine.lower import codegen, forms
from virtualgpu.engine.lower.function import list_supported_roots
from virtualgpu.errors import NotSupportedError, PtxError

# Modifiers that change a result or what a launch does, from the PTX ISA, chapter 9.7.
ROUNDINGS = ("rn", "rz", "rm", "rp", "rna", "rs", "rni", "rzi", "rmi", "rpi")
VALUES = ("ftz", "sat", "satfinite", "relu", "NaN", "abs", "xorsign.abs", "approx", "full", "noftz", "oob")
INTEGERS = ("cc", "wide", "hi", "lo", "clamp", "wrap", "shiftamt", "and", "or", "xor", "add", "popc")
BARRIERS = ("red", "arrive", "noinc", "async", "cluster", "multicast::cluster")
MATRICES = ("trans", "sp", "sp::ordered_metadata", "scale", "negate", "pack", "to", "x2", "block_scale")
PERMUTATIONS = ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
MODIFIERS = (*ROUNDINGS, *VALUES, *INTEGERS, *BARRIERS, *MATRICES, *PERMUTATIONS)
# Accepted modifiers that leave the generated code as it is, with the reason.
SAME = {
    r"(add|sub|mul)\.rn\..*": "it is the default rounding",
    r"cvt\.r[nzmp]\.(sat\.)?f(32|64)\.(b?f16|f32)": "to a wider type no rounding is needed",
    r"cvt\.r[nzmp]\.sat\.(f16\.f16|f32\.f32|f64\.f64)": "nor to the same type",
    r"cvt\.r[nzmp]i\.sat\.[us]\d+\.f\d+": "conversions of floats to integers saturate anyway",
    r"cvt\.r[nzmp]\.ftz\.f32\.[us]\d+": "integers are never subnormal",
    r"(addc|subc|madc\.hi)\.cc\..*": "the carry is read by the next instruction, which is not there",
}
FAMILIES_WALKED = ("floats", "halves", "conversions", "comparisons", "integers", "bits", "warps", "matrices")


def _changed(line: str) -> Iterator[tuple[str, str]]:
    """A line with one modifier more, or another in the place of one that it has."""
    opcode, _, operands = line.partition(" ")
    parts = opcode.split(".")
    for modifier in MODIFIERS:
        for place in range(1, len(parts) + 1):
            if modifier not in parts:
                yield modifier, f"{'.'.join([*parts[:place], modifier, *parts[place:]])} {operands}"


def _fits_anyway(opcode: str) -> bool:
    """Whether a saturating conversion of integers has nothing to cut off."""
    match = re.fullmatch(r"cvt\.sat\.([us])(\d+)\.([us])(\d+)", opcode)
    if match is None:
        return False
    target = int(match[2]) - (match[1] == "s")
    source = int(match[4]) - (match[3] == "s")
    return target >= source and (match[1] == "s" or match[3] == "u")


@functools.cache
def _code(line: str) -> str:
    """The code that is generated for a kernel of one line."""
    return codegen.generate_kernel(
        parser.parse(kernel([line])), "k", with_counters=False, with_trace=False, with_observer=False
    ).text


@pytest.mark.parametrize("family", FAMILIES_WALKED)
def test_each_accepted_modifier_changes_the_code(family: str) -> None:
    checked: set[str] = set()
    silent = []
    for line in FAMILIES[family]:
        for modifier, other in _changed(line):
            opcode = other.partition(" ")[0]
            if opcode in checked or not forms.is_supported(tuple(opcode.split("."))):
                continue
            checked.add(opcode)
            try:
                code = _code(other)
            except (PtxError, NotSupportedError):
                continue
            same = any(re.fullmatch(form, opcode) for form in SAME) or _fits_anyway(opcode)
            if code == _code(line) and not same:
                silent.append(f"{opcode}: .{modifier} changes nothing")
    assert not silent


def test_every_opcode_root_has_a_list_of_forms() -> None:
    there = {root for roots in list_supported_roots().values() for root in roots}
    assert there == forms.list_roots() | (forms.UNCHECKED_ROOTS & there)


@pytest.mark.parametrize(
    "opcode",
    [
        "add.f32.f16",
        "min.abs.f32",
        "fma.rn.oob.f16",
        "cvt.rs.f16x2.f32",
        "cvt.rn.satfinite.f16.f32",
        "lop3.or.b32",
        "prmt.b32.f4e",
        "mad24.lo.sat.s32",
        "mul.sat.s32",
        "vadd4.u32.u32.u32.sat",
        "isspacep.const",
        "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0",
        "redux.sync.min.abs.f32",
        "wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16.satfinite",
        "cp.reduce.async.bulk.global.shared::cta.add.u32",
    ],
)
def test_forms_that_are_not_executed_are_refused(opcode: str) -> None:
    assert not forms.is_supported(tuple(opcode.split(".")))


F = np.float32
QUIET = 0x7FC00001
CANONICAL = 0x7FFFFFFF


def bits(*values: float) -> np.ndarray:
    return np.array(values, F).view(np.uint32)


@pytest.mark.parametrize(
    ("opcode", "a", "b", "expected"),
    [
        ("max.xorsign.abs.f32", bits(-1), bits(2), bits(-2)),
        ("min.xorsign.abs.f32", bits(-1), bits(-2), bits(1)),
        ("max.xorsign.abs.f32", np.array([QUIET], "u4"), bits(-2), bits(-2)),
        ("max.NaN.xorsign.abs.f32", np.array([QUIET], "u4"), bits(2), np.array([CANONICAL], "u4")),
        ("min.NaN.f32", bits(1), np.array([QUIET], "u4"), np.array([CANONICAL], "u4")),
    ],
)
def test_minimum_and_maximum_with_xorsign_abs_and_nan(
    opcode: str, a: np.ndarray, b: np.ndarray, expected: np.ndarray
) -> None:
    """The expected bits are those of an H200 (driver 580, CuPy 14.2)."""
    result = apply(f"{opcode} %out, %in0, %in1;", "f32", ["f32", "f32"], [a.view(F), b.view(F)], target=90)
    assert result.view(np.uint32).tolist() == expected.tolist()


def test_mad_hi_sat_saturates_its_sum() -> None:
    columns = [1 << 30, 1 << 30, 5], [1 << 30, -(1 << 30), 7], [2**31 - 1, -(2**31), 9]
    operands = [np.array(column, np.int32) for column in columns]
    result = apply("mad.hi.sat.s32 %out, %in0, %in1, %in2;", "s32", ["s32"] * 3, operands)
    assert result.tolist() == [2**31 - 1, -(2**31), 9]


@pytest.mark.parametrize("opcode", ["cvt.rn.relu.f16.f32", "cvt.rz.relu.f16.f32", "cvt.rn.relu.bf16.f32"])
def test_relu_keeps_nan(opcode: str) -> None:
    operand = np.array([0x7FC00000, 0xFFC00000, 0xC0400000, 0x80000000], np.uint32).view(F)
    result = apply(f"{opcode} %out, %in0;", "b16", ["f32"], [operand])
    assert [hex(value) for value in result] == ["0x7fff", "0x7fff", "0x0", "0x0"]


def test_integer_to_float_conversion_saturates() -> None:
    result = apply("cvt.rn.sat.f32.s32 %out, %in0;", "f32", ["s32"], [np.array([-3, 0, 1, 5], np.int32)])
    assert result.tolist() == [0, 0, 1, 1]


def test_slct_with_ftz_flushes_a_subnormal_selector() -> None:
    tiny = np.array([-1e-40, 1e-40], F)
    one = np.array([1, 1], np.uint32)
    two = np.array([2, 2], np.uint32)
    plain = apply("slct.u32.f32 %out, %in0, %in1, %in2;", "u32", ["u32", "u32", "f32"], [one, two, tiny])
    flushed = apply(
        "slct.ftz.u32.f32 %out, %in0, %in1, %in2;", "u32", ["u32", "u32", "f32"], [one, two, tiny]
    )
    assert plain.tolist() == [2, 1]
    assert flushed.tolist() == [1, 1]


def test_messages_name_instruction_and_line() -> None:
    text = kernel(["add.u32 r, r, r"]).replace("add.u32", "add.rn.u32")
    with pytest.raises(NotSupportedError, match=re.escape("add.rn.u32")):
        codegen.generate_kernel(
            parser.parse(text), "k", with_counters=False, with_trace=False, with_observer=False
        )


@pytest.mark.parametrize("opcode", ["atom.add.release.gpu.u32", "atom.release.gpu.add.u32"])
def test_memory_order_can_precede_or_follow_the_atomic_operation(opcode: str) -> None:
    """The headers of cooperative groups write the order last, in the barrier of the whole grid."""
    assert forms.is_supported(tuple(opcode.split(".")))


@pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
@pytest.mark.parametrize("target", [75, 90])
def test_forms_of_common_memory_accesses_are_supported(target: int) -> None:
    """NVRTC writes scopes and orders before or after the state space."""
    calls = [
        f"r += atomic{name}{scope}({address}, 3);"
        for name in ("Add", "Exch", "Min", "Max", "And", "Or", "Xor")
        for scope in ("", "_block", "_system")
        for address in ("g", "&s[threadIdx.x]")
    ]
    orders = [
        f"{{ cuda::atomic_ref<int, cuda::thread_scope_{scope}> a(*g); "
        f"a.fetch_add(1, cuda::memory_order_{order}); }}"
        for scope in ("block", "device", "system")
        for order in ("relaxed", "acq_rel", "seq_cst")
    ]
    hints = ["r += __ldg(g) + __ldcg(g) + __ldcs(g) + __ldcv(g);", "__stcg(g, r); __stwt(g, r);"]
    body = " ".join([*calls, *orders, *hints])
    code = f"""#include <cuda/atomic>
    extern "C" __global__ void k(int* g) {{ __shared__ int s[64]; int r = 0; {body} *g = r; }}"""
    module = parser.parse(nvrtc.compile_ptx(code, target=target, options=("-std=c++17",)).ptx)
    opcodes = {i.opcode for function in module.functions.values() for i in function.instructions}
    assert not [opcode for opcode in opcodes if not forms.is_supported(tuple(opcode.split(".")))]
    assert any("shared.cta" in opcode for opcode in opcodes)  # a scope after the space
