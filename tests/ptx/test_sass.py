"""Machine code of the course's kernels, and which line of the PTX each instruction comes from."""

from __future__ import annotations

import os
import re

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from gpulab.views.tables.as_run import AsRunTable
from tools.corpus import list_kernel_files, read_kernel_code
from virtualgpu.compile import nvrtc, sass
from virtualgpu.compile.as_run import convert_counts
from virtualgpu.compile.ptx.flow.regions import find_regions
from virtualgpu.compile.ptx.parser import parse
from virtualgpu.records import AccessCounters, BranchCounters, KernelCounters, KernelSource, Provenance
from virtualgpu.records.as_run import AccessAsRun, AsRun, BranchAsRun

needs_nvdisasm = pytest.mark.skipif(not sass.is_available(), reason="needs nvidia-cuda-nvdisasm")

PRINTED = """
	.section	.text.copy,"ax",@progbits
        .type           copy,@function
copy:
.text.copy:
	//## File ".nv_debug_ptx_txt", line 24
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 EXIT ;
	//## File ".nv_debug_ptx_txt", line 31
        /*0020*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0030*/              @UP0 BRA `(.L_x_1) ;
        /*0040*/               @PT BRA `(.L_x_1) ;
.L_x_1:
	//## File ".nv_debug_ptx_txt", line 33
        /*0050*/               @P1 STS.U8 [R3+UR4], R4 ;
        /*0060*/                   ATOMS.CAS.64 R6, [R11], R4, R6 ;
        /*0070*/                   REDG.E.ADD.STRONG.GPU desc[UR4][R4.64], R7 ;
        /*0080*/                   REDUX.SUM UR6, R4 ;
        /*0090*/                   BRA.DIV UR4, `(.L_x_1) ;
"""


def test_parses_nvdisasm_output() -> None:
    code = sass.parse_disassembly(PRINTED)["copy"]
    accesses = [(i.space, i.kind, i.size_bytes, i.guarded, i.ptx_line) for i in code if i.space]
    assert accesses == [
        ("global", "load", 16, False, 31),
        ("shared", "store", 1, True, 33),
        ("shared", "atomic", 8, False, 33),
        ("global", "atomic", 4, False, 33),
    ]
    assert [i.opcode for i in code if i.is_conditional_branch] == ["EXIT", "BRA"]
    assert [i.address for i in code] == list(range(0, 0xA0, 0x10))


# NVRTC's machine code of all kernels for all targets takes more than a minute: each kernel has one of
# them, or with GPULAB_FUZZ=all every one.
TARGETS = (75, 80, 90, 100, 120)
EVERY = os.environ.get("GPULAB_FUZZ") == "all"


@needs_nvdisasm
@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_memory_instructions_map_to_ptx_memory_instructions(target: int) -> None:
    memory_instruction = re.compile(r"\b(?:ld|st|atom|red)\.")
    count = 0
    files = list_kernel_files() if EVERY else list_kernel_files()[TARGETS.index(target) :: len(TARGETS)]
    for file in files:
        code = read_kernel_code(file)
        ptx = nvrtc.compile_ptx(code, target=target, options=nvrtc.CUPY_OPTIONS).ptx.splitlines()
        cubin = nvrtc.compile_cubin(code, target=target, options=("-lineinfo", *nvrtc.CUPY_OPTIONS)).cubin
        for instructions in sass.disassemble(cubin).values():
            for i in instructions:
                if i.space:
                    assert memory_instruction.search(ptx[i.ptx_line - 1]), (file, i)
                    count += 1
    assert count > 5 * len(files), count


def test_non_cubin_data_is_refused() -> None:
    if not sass.is_available():
        pytest.skip("needs nvidia-cuda-nvdisasm")
    with pytest.raises(gl.errors.GpulabError, match="nvdisasm cannot read"):
        sass.disassemble(b"no ELF file at all")


# A branch around a store, then two neighbouring loads from shared memory.
PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k()
{
.reg .pred %p<3>;
.reg .b32 %r<9>;
.reg .f32 %f<9>;
.shared .align 16 .b8 tile[64];
mov.u32 %r1, %tid.x;
setp.gt.u32 %p1, %r1, 7;
@%p1 bra $after;
st.shared.f32 [tile], %f1;
$after:
bar.sync 0;
ld.shared.f32 %f2, [tile+8];
ld.shared.f32 %f3, [tile+12];
ld.shared.f32 %f4, [tile+32];
ret;
}
"""


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(PTX.splitlines(), 1) if text in line)


def counters() -> KernelCounters:
    function = parse(PTX).functions["k"]
    accesses = []
    branches = []
    for i in function.instructions:
        kind = {"ld": "load", "st": "store"}.get(i.root)
        if kind:
            requests = 3 if kind == "store" else 8
            accesses.append(
                AccessCounters(
                    pc=i.pc,
                    line=0,
                    text=i.text,
                    space="shared",
                    kind=kind,
                    size_bytes=4,
                    requests=requests,
                    sectors=0,
                    wavefronts=8,
                    ideal_wavefronts=8,
                    bytes_requested=128,
                )
            )  # type: ignore[arg-type]
        elif i.root == "bra":
            branches.append(BranchCounters(i.pc, 0, i.text, 8, 3))
    provenance = Provenance("modelled", "virtual A100")
    return KernelCounters(
        provenance=provenance,
        kernel_name="k",
        grid=(1, 1, 1),
        block=(256, 1, 1),
        shared_bytes=64,
        warp_instructions=0,
        thread_instructions=0,
        accesses=tuple(accesses),
        branches=tuple(branches),
    )


def machine(*rows: tuple[str, bool, str]) -> dict[str, tuple[sass.SassInstruction, ...]]:
    code = [
        sass.SassInstruction(16 * n, op, guarded, "", line_of(text))
        for n, (op, guarded, text) in enumerate(rows)
    ]
    return {"k": tuple(code)}


def row_of(record: AsRun, text: str) -> AccessAsRun | BranchAsRun:
    rows: list[AccessAsRun | BranchAsRun] = [*record.accesses, *record.branches]
    return next(row for row in rows if text in row.text)


def test_machine_code_that_equals_the_ptx_keeps_its_counts() -> None:
    record = convert_counts(
        counters(),
        PTX,
        machine(
            ("BRA", True, "bra $after"),
            ("STS", False, "st.shared"),
            ("LDS", False, "tile+8"),
            ("LDS", False, "tile+12"),
            ("LDS", False, "tile+32"),
        ),
        80,
    )
    assert record.total("executions", "shared", "load") == 24
    assert record.total("executions", "shared", "store") == 3
    assert record.divergent_branches == 3
    assert record.differences == ()


def test_counts_of_a_predicated_branch_and_a_merged_load() -> None:
    record = convert_counts(
        counters(),
        PTX,
        machine(("STS", True, "st.shared"), ("LDS.64", False, "tile+12"), ("LDS", False, "tile+32")),
        80,
    )
    store = row_of(record, "st.shared")
    assert isinstance(store, AccessAsRun)
    assert (store.executions, store.requests) == (8, 3)
    assert record.divergent_branches == 0
    assert record.total("executions", "shared", "load") == 16
    first = row_of(record, "tile+8")
    second = row_of(record, "tile+12")
    assert isinstance(first, AccessAsRun)
    assert isinstance(second, AccessAsRun)
    assert (first.opcode, first.merged_into) == ("", second.pc)
    assert len(record.differences) == 3
    assert any("Two shared loads of 4 bytes" in text for text in record.differences)


def test_counts_of_speculated_removed_and_additional_accesses() -> None:
    record = convert_counts(
        counters(),
        PTX,
        machine(
            ("STS", False, "st.shared"),
            ("LDS", False, "tile+8"),
            ("LDL", False, "tile+32"),
            ("STL", False, "mov.u32"),
            ("BRA", True, "setp"),
        ),
        80,
    )
    store = row_of(record, "st.shared")
    assert isinstance(store, AccessAsRun)
    assert (store.executions, store.requests) == (8, 8)
    assert "ptxas removed this access" in row_of(record, "tile+12").note
    assert dict(record.extra) == {"local store STL": 1}


def test_counts_are_unknown_if_the_loop_body_was_duplicated() -> None:
    record = convert_counts(
        counters(),
        PTX,
        machine(
            ("BRA", True, "bra $after"),
            ("BRA", True, "bra $after"),
            ("STS", False, "st.shared"),
            ("LDS", False, "tile+8"),
            ("LDS", False, "tile+12"),
            ("LDS.128", False, "tile+32"),
        ),
        80,
    )
    assert record.total("executions", "shared", "load") is None
    assert record.divergent_branches is None
    assert any("appears 2 times" in text for text in record.differences)


def test_find_regions_returns_blocks_controlled_by_a_branch() -> None:
    function = parse(PTX).functions["k"]
    (region,) = [blocks for blocks in find_regions(function).values() if blocks]
    assert len(region) == 1


@pytest.fixture
def tiled() -> KernelSource:
    session.use_device("virtual:H200")
    return KernelSource("matmul_tiled", read_kernel_code("matmul.cu"))


def launch(kernel: KernelSource) -> AsRunTable:
    n = 64
    values = (
        np.ones((n, n), np.float32),
        np.ones((n, n), np.float32),
        np.zeros((n, n), np.float32),
        np.int32(n),
    )
    cp = session.cp()
    arrays = tuple(cp.asarray(v) if isinstance(v, np.ndarray) else v for v in values)
    return gl.machine_code(cp.RawKernel(kernel.code, kernel.name), (4, 4), (16, 16), arrays)


@needs_nvdisasm
def test_table_explains_which_loads_merged_and_why(tiled: KernelSource) -> None:
    try:
        table = launch(tiled)
    finally:
        session.use_device("auto")
    text = repr(table)
    assert "16 × LDS, 4 × LDS.128" in text
    assert re.search(r"shared loads\s+16,384\s+10,240", text)
    assert "executed on virtual H200" in text
    assert "Four shared loads of 4 bytes at adjacent addresses run as one LDS.128 of 16 bytes." in text


@needs_nvdisasm
def test_a_template_with_a_device_function_and_a_division() -> None:
    code = r"""
template <class T> __device__ __noinline__ T twice(const T* x, int i) { return x[i] * T(2); }
template <class T> __global__ void scale(const T* x, T* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = twice(x, i) / T(i + 1);
}"""
    session.use_device("virtual:A100")
    try:
        cp = session.cp()
        x = cp.ones(100, dtype=cp.float64)
        y = cp.zeros(100, dtype=cp.float64)
        module = cp.RawModule(code=code, name_expressions=["scale<float>", "scale<double>"])
        table = gl.machine_code(module.get_function("scale<double>"), 4, 32, (x, y, np.int32(100)))
    finally:
        session.use_device("auto")
    assert table.target == "sm_80"
    assert [a.opcode for a in table.accesses if a.kind == "load"] == ["LDG.E.64"]
    assert table.total("executions", "global") == 8
    assert table.divergent_branches is None
    assert "branch of a slow path" in repr(table)


def test_error_without_nvdisasm_names_the_package(
    tiled: KernelSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sass, "_find_nvdisasm", lambda: None)
    try:
        with pytest.raises(sass.NvdisasmMissingError, match="install nvidia-cuda-nvdisasm"):
            launch(tiled)
    finally:
        session.use_device("auto")


# For each atomic, the instruction in machine code as nvdisasm prints it, and the note about it.
ATOMICS = [
    ("int", "atomicAdd(out, 1)", "POPC", "counts its lanes first"),
    ("int", "out[1 + threadIdx.x] = atomicAdd(out, 1)", "POPC", "counts its lanes first"),
    ("int", "atomicAdd(out, x[threadIdx.x])", "REDUX.SUM", r"combines .*\(REDUX\.SUM\)"),
    ("int", "atomicMax(out, x[threadIdx.x])", "REDUX.MAX", r"combines .*\(REDUX\.MAX\.S32\)"),
    ("int", "out[1 + threadIdx.x] = atomicAdd(out, x[threadIdx.x])", "SHFL", r"adds up .*\(SHFL\)"),
    ("int", "atomicAdd(out + x[threadIdx.x] % 16, 1)", "RED", "old value is not used"),
    ("float", "atomicAdd(out, x[threadIdx.x])", "RED", "old value is not used"),
    ("float", "out[1 + threadIdx.x] = atomicExch(out, x[threadIdx.x])", "ATOMG.E.EXCH", "^$"),
]


@needs_nvdisasm
@pytest.mark.parametrize(("kind", "statement", "opcode", "words"), ATOMICS)
def test_note_explains_how_atomics_were_compiled(kind: str, statement: str, opcode: str, words: str) -> None:
    code = f'extern "C" __global__ void k({kind}* out, const {kind}* x) {{ {statement}; }}'
    cp = session.cp()
    target = int(cp.cuda.Device().compute_capability)
    machine = nvrtc.compile_cubin(code, target=target, options=nvrtc.CUPY_OPTIONS).cubin
    assert any(i.opcode.startswith(opcode) for i in sass.disassemble(machine)["k"])
    dtype = {"int": np.int32, "float": np.float32}[kind]
    table = gl.machine_code(cp.RawKernel(code, "k"), 1, 64, (cp.zeros(65, dtype), cp.arange(64, dtype=dtype)))
    (atomic,) = (a for a in table.accesses if a.kind == "atomic")
    assert re.search(words, atomic.note)
    assert (atomic.written, atomic.executions) == (2, 2)
