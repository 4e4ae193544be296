"""Products and sums that ptxas fuses: its machine code, its choices at the edges, an H200's last bits."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from gpulab import session
from tests.engine import arithmetic, ptx_runner
from tools.corpus import list_kernel_files, read_kernel_code
from virtualgpu.compile import nvrtc, sass
from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.contract import contract_products, find_fusions
from virtualgpu.compile.ptx.entry_text import find_entry
from virtualgpu.compile.ptx.parser import parse

needs_nvdisasm = pytest.mark.skipif(not sass.is_available(), reason="needs nvidia-cuda-nvdisasm")
RECORDED = json.loads(arithmetic.RECORDED.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def h200() -> Any:
    with session.on_device("virtual:H200") as cp:
        yield cp


@pytest.mark.parametrize("kernel", arithmetic.KERNELS)
def test_results_are_bit_identical_to_an_h200s(h200: Any, kernel: str) -> None:
    assert RECORDED["device"] == "NVIDIA H200"
    assert arithmetic.digest(arithmetic.outputs(h200, kernel)) == RECORDED["digests"][kernel]


# -- the machine code ------------------------------------------------------------------------------------


def is_sum(i: ir.Instruction) -> bool:
    return i.root in ("add", "sub") and i.type in ("f16", "f16x2", "bf16", "bf16x2", "f32", "f64")


def compared(code: str, target: int) -> tuple[int, int, list[str]]:
    """Sums whose machine code can be told, those fused, and those of which the engine thinks otherwise."""
    image, machine = nvrtc.compile_both(code, target=target, options=nvrtc.CUPY_OPTIONS)
    assert machine is not None
    by_line: defaultdict[int, set[bool]] = defaultdict(set)
    for instructions in sass.disassemble(machine.cubin).values():
        for i in instructions:
            unit_operand = re.search(
                r", 1, 1, |-RZ, RZ", i.operands
            )  # a sum or a constant by the multiplier's unit
            if re.match(r"[FDH](FMA|ADD)", i.opcode) and not unit_operand:
                by_line[i.ptx_line].add("FMA" in i.opcode)
    sums = 0
    fused = 0
    differences = []
    for name, entry in parse(image.ptx).entries.items():
        statements = [s for s in find_entry(image.ptx, name).statements if s.is_code]
        chosen = find_fusions(entry)
        for i, statement in zip(entry.instructions, statements, strict=True):
            fusions_of_line = by_line[image.ptx.count("\n", 0, statement.start) + 1] if is_sum(i) else set()
            if not fusions_of_line:
                continue
            sums = sums + 1
            fused = fused + (i.pc in chosen)
            if fusions_of_line != {i.pc in chosen}:
                differences.append(f"{name}: {i.text}")
    return sums, fused, differences


@needs_nvdisasm
@pytest.mark.parametrize("target", [80, 90])
def test_fused_operations_of_common_kernels_equal_machine_code(target: int) -> None:
    sums, fused, differences = compared(arithmetic.SOURCE, target)
    assert not differences
    assert sums > 400
    assert fused > 150


@needs_nvdisasm
@pytest.mark.parametrize("file", [f for f in list_kernel_files() if "float" in read_kernel_code(f)])
def test_fused_operations_of_course_kernels_equal_machine_code(file: str) -> None:
    assert compared(read_kernel_code(file), 80)[2] == []


def random_kernel(seed: int) -> str:
    """Products and sums as inline assembly, which NVVM leaves as it is, before, in and after an ``if``."""
    rng = random.Random(seed)
    body = [f"float v{n} = x[{n}];" for n in range(6)]

    def lines(count: int, names: list[str], products: list[str]) -> None:
        results: list[str] = []
        used: set[str] = set()
        for _ in range(count):
            kind = rng.choice(("mul", "add", "sub"))
            pool = products if products and kind != "mul" and rng.random() < 0.8 else names
            first, second = rng.sample([rng.choice(pool), *rng.sample(names, 1)], 2)
            name = f"w{len(body)}"
            flush = ".ftz" if rng.random() < 0.95 else ""
            reads = f'"f"({first}), "f"({second})'
            body.append(f'float {name}; asm("{kind}{flush}.f32 %0, %1, %2;" : "=f"({name}) : {reads});')
            used |= {first, second}
            results.append(name)
            names.append(name)
            if kind == "mul":
                products.append(name)
        body.extend(f"out[{len(body) + n}] = {name};" for n, name in enumerate(results) if name not in used)

    names = [f"v{n}" for n in range(6)] + ["p", "2.5f"]
    products = list[str]()
    lines(7, names, products)
    body.append("if (n > 3) { __syncthreads();")
    lines(5, [*names], [*products])
    body.append("__nanosleep(n); }")
    lines(5, names, products)
    head = f'extern "C" __global__ void k{seed}(volatile float* out, const float* x, float p, int n) {{'
    return "\n".join([head, *body, "}\n"])


@needs_nvdisasm
@pytest.mark.parametrize("target", [75, 90, 120])
def test_fused_operations_of_random_code_equal_machine_code(target: int) -> None:
    sums, fused, differences = compared("".join(random_kernel(seed) for seed in range(60)), target)
    assert not differences
    assert sums > 300
    assert fused > 60


# -- the edges, each as ptxas 13.0 and 13.5 have it ---------------------------------------------------------

ENTRY = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 pa, .param .f32 pf, .param .u32 pn) {
.reg .f32 %f<20>;
.reg .b64 %rd<4>;
.reg .b32 %r<4>;
.reg .pred %p<4>;
ld.param.u64 %rd1, [pa];
ld.param.f32 %f9, [pf];
ld.param.u32 %r1, [pn];
setp.gt.s32 %p1, %r1, 3;
ld.global.f32 %f1, [%rd1];
ld.global.f32 %f2, [%rd1+4];
ld.global.f32 %f3, [%rd1+8];
"""
STORE = "st.global.f32 [%rd1], {};"
PRODUCT = "mul.f32 %f10, %f1, %f2;"
SUM = "add.f32 %f12, %f10, %f3;"


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        ([PRODUCT, SUM], [SUM]),
        ([PRODUCT, "sub.f32 %f12, %f3, %f10;"], ["sub.f32 %f12, %f3, %f10;"]),
        (["mul.rn.f32 %f10, %f1, %f2;", SUM], []),
        ([PRODUCT, "add.rn.f32 %f12, %f10, %f3;"], []),
        (["mul.ftz.f32 %f10, %f1, %f2;", SUM], []),
        (["mul.sat.f32 %f10, %f1, %f2;", SUM], []),
        ([PRODUCT, "add.sat.f32 %f12, %f10, %f3;"], ["add.sat.f32 %f12, %f10, %f3;"]),
        ([PRODUCT, "add.f32 %f12, %f10, %f10;"], []),
        ([PRODUCT, STORE.format("%f10"), SUM], []),
        ([PRODUCT, SUM, "fma.rn.f32 %f13, %f1, %f3, %f10;"], []),
        ([PRODUCT, "mov.f32 %f12, %f3;", "@%p1 add.f32 %f12, %f10, %f3;"], ["@%p1 add.f32 %f12, %f10, %f3;"]),
        (["mov.f32 %f10, %f3;", "@%p1 mul.f32 %f10, %f1, %f2;", SUM], []),
        ([PRODUCT, "bar.sync 0;", SUM], [SUM]),
        ([PRODUCT, "@%p1 bra L;", STORE.format("%f3"), "L:", SUM], []),
        (["mul.f32 %f10, %f1, %f9;", "@%p1 bra L;", STORE.format("%f3"), "L:", SUM], [SUM]),
        (["mul.f32 %f10, %f1, 0f40400000;", "@%p1 bra L;", STORE.format("%f3"), "L:", SUM], [SUM]),
        # Of two products the first; the one with fewer uses; one that stays in one sum leaves another.
        ([PRODUCT, "mul.f32 %f11, %f3, %f3;", "add.f32 %f12, %f10, %f11;"], ["add.f32 %f12, %f10, %f11;"]),
        (
            [PRODUCT, "mul.f32 %f11, %f3, %f3;", "sub.f32 %f12, %f10, %f11;", "add.f32 %f13, %f10, %f3;"],
            ["sub.f32 %f12, %f10, %f11;"],
        ),
        ([PRODUCT, SUM, "sub.f32 %f13, %f10, %f2;"], [SUM, "sub.f32 %f13, %f10, %f2;"]),
    ],
)
def test_conditions_of_fusion(body: list[str], texts: list[str]) -> None:
    ends = [STORE.format(f"%f{n}") for n in (12, 13)]
    function = parse("\n".join([ENTRY, *body, *ends, "ret;", "}"])).functions["k"]
    fused = [function.instructions[pc].text for pc in sorted(find_fusions(function))]
    assert fused == [text.rstrip(";") for text in texts]


def test_a_fused_product_is_exact() -> None:
    """A fused product is not rounded, so subtracting the rounded product leaves its rounding error."""
    a = np.float32([1 + 2**-12, 3 + 2**-20])
    body = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 pa) {
.reg .f32 %f<9>;
.reg .b64 %rd<2>;
ld.param.u64 %rd1, [pa];
ld.global.f32 %f1, [%rd1];
mul.rn.f32 %f2, %f1, %f1;
mul.f32 %f3, %f1, %f1;
sub.f32 %f4, KIND;
st.global.f32 [%rd1], %f4;
ret;
}
"""
    for kind, sign in (("%f3, %f2", 1), ("%f2, %f3", -1)):
        for value in a:
            (result,) = ptx_runner.launch(body.replace("KIND", kind), "k", [np.full(1, value)])
            exact = float(value) ** 2 - float(np.float32(value * value))
            assert result[0] == np.float32(sign * exact) != 0


def test_fusion_keeps_the_text_and_index_of_instructions() -> None:
    module = parse("\n".join([ENTRY, PRODUCT, SUM, STORE.format("%f12"), "ret;", "}"]))
    original, contracted = (m.functions["k"].instructions for m in (module, contract_products(module)))
    assert [(i.pc, i.text, i.line) for i in original] == [(i.pc, i.text, i.line) for i in contracted]
    assert [i.root for i in contracted if i.type == "f32"].count("fma") == 1
