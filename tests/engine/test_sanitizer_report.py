"""Findings made by hand become hazards: elements, names, causes and remedies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.compile.ptx.parser import parse
from virtualgpu.engine.ir import layout
from virtualgpu.model.memory import DeviceMemory
from virtualgpu.records import Hazard, Place
from virtualgpu.sanitizer import structures
from virtualgpu.sanitizer.checker import Access, Arrival, FindingOccurrences
from virtualgpu.sanitizer.findings import Findings
from virtualgpu.sanitizer.ordering import Ordering
from virtualgpu.sanitizer.report import sentences
from virtualgpu.sanitizer.report.declarations import read_declarations
from virtualgpu.sanitizer.report.hazards import Report
from virtualgpu.sanitizer.report.names import ElementNames
from virtualgpu.sanitizer.report.updates import find_rechecks, find_updates
from virtualgpu.sanitizer.sites import make_register_site, make_site

# -- declarations -----------------------------------------------------------------------------------------


def element(source: str, offset: int, size_bytes: int = 0, name: str = "a") -> str:
    return read_declarations(source).find_element_name(name, offset, size_bytes)


@pytest.mark.parametrize(
    "kind", ["char4", "uchar4", "half2", "float2", "float3", "float4", "int3", "uint4", "double2"]
)
def test_vector_components_are_named_x_y_z_w(kind: str) -> None:
    width = {"char": 1, "uchar": 1, "half": 2, "double": 8}.get(kind[:-1], 4)
    count = int(kind[-1])
    for n in range(count):
        offset = (count + n) * width
        assert element(f"__shared__ {kind} a[2];", offset, 2 * count * width) == f"a[1].{'xyzw'[n]}"
        if width > 1:
            middle = element(f"__shared__ {kind} a[2];", offset + 1, 2 * count * width)
            assert middle == f"byte {n * width + 1} of a[1]"


@pytest.mark.parametrize(
    ("extent", "value"),
    [
        ("7 + 2", 9),
        ("7 - 2", 5),
        ("3 * 4", 12),
        ("9 / 2", 4),
        ("9 % 5", 4),
        ("1 << 4", 16),
        ("64 >> 2", 16),
        ("(2 + 3) * 2", 10),
        ("16UL + 2ull", 18),
        ("FOUR * EIGHT", 32),
        ("TWO + THREE", 5),
        ("2 + (1 >> 63)", 2),
        ("1 << 64", None),
        ("4 / 0", None),
        ("4 % 0", None),
        ("0", None),
        ("2 - 3", None),
        ("2.5", None),
        ("2 * f(3)", None),
        ("N", None),
        ("2 +", None),
        ("CALL", None),
    ],
)
def test_array_extents_are_evaluated_as_in_c(extent: str, value: int | None) -> None:
    source = (
        "#define FOUR 4\n#define EIGHT \\\n (FOUR + FOUR)\n#define CALL f(FOUR)\n"
        f"const int TWO = 2, THREE = TWO + 1;\n__shared__ char first[3][{extent}];"
    )
    # Where the launch says how large it is, nothing but the declaration gives the rows' length.
    text = "" if value is None else f"first[1][{value - 1}]"
    assert element(source, 2 * (value or 3) - 1, 0, "first") == text
    if value is not None:
        assert element(source, 2 * value - 1, 3 * value, "first") == text
        assert not element(source, 2 * value - 1, 3 * value + 1, "first")
        assert element(source, 2 * value, 0, "first") == "first[2][0]"


def test_one_unknown_extent_is_inferred_from_the_array_size() -> None:
    def last(extents: str, count: int) -> str:
        return element(f"__shared__ float a{extents};", 4 * (count - 1), 4 * count)

    assert [last("[N]", n) for n in (1, 5)] == ["a[0]", "a[4]"]
    assert [last("[N][N]", n) for n in (9, 10, 16)] == ["a[2][2]", "", "a[3][3]"]
    assert [last("[2][N + 1]", n) for n in (2, 4, 6, 7)] == ["", "a[1][1]", "a[1][2]", ""]
    assert last("[N][M]", 4) == ""
    assert element("extern __shared__ float a[N];", 4, 0) == ""
    recursive = "#define A B\n#define B A\n#define C C\n__shared__ int a[A], b[C];\n"
    assert (element(recursive, 8, 16), element(recursive, 8, 16, "b")) == ("a[2]", "b[2]")


def test_an_open_extent_covers_the_whole_memory() -> None:
    source = "extern __shared__ float a[][4];\n__device__ int b[][N];"
    assert [element(source, 4 * 9, size) for size in (0, 4 * 12, 4 * 13)] == ["a[2][1]", "a[2][1]", ""]
    assert element(source, 4, 16, "b") == "", "its rows may have any length"


DECLARED = """
#define T 16
#define WIDE (T + 1)
constexpr unsigned int WARPS = 4, LANES = 32;
/* __shared__ float hidden[3]; */
__device__ unsigned int counts[3][4], last;  // int not[1];
__constant__ __align__(16) float coefficients[2 * T];
__constant__ Pair<int, 2> pairs[2];
__managed__ int filled[2] = {1, 2};
template <int N> __global__ void k() {
  __shared__ float As[T][T], Bs[T][WIDE];
  __shared__ alignas(128) half padded[N][N + 8];
  extern __shared__ double dynamic[];
  __shared__ volatile int* rows[WARPS];
  __shared__ float4 corners[LANES / WARPS];
  __shared__ Node nodes[1 << 2];
  __shared__ Node node;
  __shared__ bool done;
  __shared__ float cube[2][3][4];
}
__global__ void other() { __shared__ float cube[24]; __shared__ int As[2]; }
"""


@pytest.mark.parametrize(
    ("name", "offset", "size_bytes", "text"),
    [
        ("As", 128, 1024, "As[2][0]"),
        ("As", 4, 8, "As[1]"),
        ("Bs", 4 * (2 * 17 + 1), 4 * 16 * 17, "Bs[2][1]"),
        ("padded", 2 * (3 * 40 + 5), 2 * 32 * 40, "padded[3][5]"),
        ("dynamic", 24, 0, "dynamic[3]"),
        ("rows", 16, 32, "rows[2]"),
        ("corners", 20, 128, "corners[1].y"),
        ("nodes", 12, 48, "nodes[1]"),
        ("nodes", 14, 48, "byte 2 of nodes[1]"),
        ("nodes", 0, 50, ""),
        ("node", 5, 12, "byte 5 of node"),
        ("pairs", 8, 16, "pairs[1]"),
        ("filled", 4, 8, "filled[1]"),
        ("done", 0, 1, "done"),
        ("counts", 20, 48, "counts[1][1]"),
        ("last", 0, 4, "last"),
        ("coefficients", 8, 128, "coefficients[2]"),
        ("cube", 20, 96, ""),  # two of this name and size
        ("hidden", 4, 12, ""),
        ("As", 4, 100, ""),  # none of this size
        ("nothing", 4, 8, ""),
    ],
)
def test_elements_are_named_by_their_declaration(name: str, offset: int, size_bytes: int, text: str) -> None:
    assert element(DECLARED, offset, size_bytes, name) == text


# -- names ------------------------------------------------------------------------------------------------


def names(memory: DeviceMemory, **changes: Any) -> ElementNames:
    fields = {
        "declarations": read_declarations(
            "__shared__ float s[2][4], t[3];\n__device__ int box[2], other[3];"
        ),
        "shared_offsets": {"s": 64},
        "shared_sizes": {"s": 32},
        "parameter_by_address": {},
        "shared_words": 64,
        "local_words": 8,
    } | changes
    return ElementNames(memory=memory, **fields)


def test_names_of_shared_memory() -> None:
    offsets = {"_ZZ1kvE1s": 64, "t": 96, "u": 128}
    name = names(
        DeviceMemory(1 << 20), shared_offsets=offsets, shared_sizes={"_ZZ1kvE1s": 32, "t": 12, "u": 8}
    ).name_shared_element
    assert name(63) == "byte 63 of shared memory"
    assert name(64) == "s[0][0]"
    assert name(64 + 20) == "s[1][1]"
    assert name(95) == "byte 3 of s[1][3]"
    assert name(104) == "t[2]"
    assert name(128 + 1234) == "byte 1,234 of shared array u"


def test_names_of_device_memory() -> None:
    memory = DeviceMemory(1 << 20)
    assert names(memory).name_device_element(1 << 40) == ""
    starts = [memory.malloc(4096) for _ in range(5)]
    labels = (
        "float32 array of shape (4, 8)",
        "float64 array of shape (16,)",
        "module variable box",
        "module variable _ZN2abE1s",
        "copy of something",
    )
    for start, size, label in zip(starts, (128, 128, 8, 8, 4096), labels, strict=True):
        memory.track_allocation(start, size, label)
    matrix, row, box, mangled, plain = starts
    name = names(memory, parameter_by_address={matrix: "m", row: "r", row + 64: "half"}).name_device_element
    assert name(matrix + 4 * 13) == "m[13] ([1, 5] of shape (4, 8))"
    assert name(matrix + 4 * 32) == "m[32]", "past the array's end"
    assert name(matrix + 2) == "element 0 of the float32 array of shape (4, 8)"
    assert name(row + 56) == "r[7]"
    assert name(row + 80) == "half[2]"
    assert name(box + 4) == "box[1]"
    assert name(mangled + 4) == "byte 4 of the module variable s"
    assert name(plain + 1234) == "byte 1,234 of the copy of something"
    inner = names(memory, parameter_by_address={matrix + 64: "m"}).name_device_element
    assert inner(matrix + 4 * 15) == "element 15 of the float32 array of shape (4, 8)"
    assert inner(matrix + 4 * 17) == "m[1]", "as the kernel counts, from where its pointer points"


# -- updates ----------------------------------------------------------------------------------------------


def function(*code: str) -> ir.Function:
    """A kernel of instructions; ``12| `` in front of one gives it and those after it a line of the source."""
    body = []
    for text in code:
        line, _, instruction = text.rpartition("| ")
        body += [f".loc 1 {line} 1"] if line.strip() else []
        body.append(instruction if instruction.endswith(":") else f"{instruction};")
    text = "\n".join(body)
    return parse(
        f".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{{\n.reg .b32 %r<40>;\n"
        f".reg .b64 %rd<9>;\n.reg .f32 %f<9>;\n.reg .pred %p<9>;\n{text}\nret;\n}}\n"
    ).entries["k"]


LOAD = "2| ld.global.u32 %r1, [%rd1]"
STORE = "3| st.global.u32 [%rd1], %r2"


def update_lines(*code: str) -> list[tuple[int, int, str]]:
    """Lines of the load and of the store of each update, and its atomic."""
    return sorted(
        {
            (update.load_line, update.store_line, update.atomic_name)
            for update in find_updates(function(*code)).values()
        }
    )


@pytest.mark.parametrize(
    ("steps", "atomic"),
    [
        (["add.s32 %r2, %r1, %r3"], "atomicAdd"),
        (["sub.s32 %r2, %r3, %r1"], "atomicAdd"),
        (["min.s32 %r2, %r1, %r3"], "atomicMin"),
        (["max.u32 %r2, %r3, %r1"], "atomicMax"),
        (["and.b32 %r2, %r1, %r3"], "atomicAnd"),
        (["or.b32 %r2, %r1, %r3"], "atomicOr"),
        (["xor.b32 %r2, %r1, %r3"], "atomicXor"),
        (["mul.lo.s32 %r2, %r1, %r3"], "none"),
        (["add.s32 %r5, %r1, 1", "mov.u32 %r2, %r5"], "atomicAdd"),
        (["add.s32 %r5, %r1, 1", "mul.lo.s32 %r2, %r5, %r6"], "none"),
        (["mov.u32 %r2, %r1"], ""),
    ],
)
def test_the_operation_on_a_loaded_value_selects_the_atomic(steps: list[str], atomic: str) -> None:
    assert update_lines(LOAD, *steps, STORE) == ([(2, 3, atomic)] if atomic else [])


@pytest.mark.parametrize(
    ("step", "atomic"),
    [
        ("min.f32 %f2, %f1, %f3", "none"),
        ("add.f32 %f2, %f1, %f3", "atomicAdd"),
        ("fma.rn.f32 %f2, %f3, %f4, %f1", "atomicAdd"),
    ],
)
def test_floats_have_no_atomic_minimum(step: str, atomic: str) -> None:
    load = "2| ld.global.f32 %f1, [%rd1]"
    assert update_lines(load, step, "3| st.global.f32 [%rd1], %f2") == [(2, 3, atomic)]


ADD = "add.s32 %r2, %r1, 1"


@pytest.mark.parametrize(
    "code",
    [
        ["2| ld.global.u32 %r1, [%rd2]", ADD, STORE],
        ["2| ld.global.u32 %r1, [%rd1+4]", ADD, STORE],
        [ADD, STORE, LOAD],
        [LOAD, "3| st.global.u32 [%rd1], 7"],
        [LOAD, "atom.global.add.u32 %r2, [%rd1], %r1", STORE],
        [LOAD, "ld.global.u32 %r2, [%rd1+8]", STORE],
    ],
)
def test_a_store_of_another_value_is_no_update(code: list[str]) -> None:
    assert update_lines(*code) == []


COMPARE = "setp.gt.s32 %p1, %r3, %r1"
GUARDED = ["3| st.global.u32 [%rd1], %r3", "END:"]


@pytest.mark.parametrize(
    "code",
    [
        [LOAD, COMPARE, "@!%p1 bra END", *GUARDED],
        [LOAD, "setp.gt.s32 %p1, %r1, %r3", "@!%p1 bra END", *GUARDED],
        [LOAD, COMPARE, "setp.ne.s32 %p2, %r4, 0", "and.pred %p3, %p1, %p2", "@!%p3 bra END", *GUARDED],
        [LOAD, COMPARE, "not.pred %p3, %p1", "@%p3 bra END", *GUARDED],
        [LOAD, COMPARE, "or.pred %p3, %p2, %p1", "@%p3 bra END", *GUARDED],
        [LOAD, "bar.warp.sync -1", COMPARE, "@!%p1 bra END", *GUARDED],
        [LOAD, COMPARE, "3| @%p1 st.global.u32 [%rd1], %r3"],
    ],
)
def test_a_store_guarded_by_the_old_value_is_an_update(code: list[str]) -> None:
    assert update_lines(*code) == [(2, 3, "compare")]


@pytest.mark.parametrize(
    "code",
    [
        [LOAD, COMPARE, "@!%p2 bra END", *GUARDED],
        [LOAD, COMPARE, GUARDED[0]],
        ["2| ld.global.u32 %r1, [%rd2]", COMPARE, "@!%p1 bra END", *GUARDED],
        [LOAD, COMPARE, "@!%p1 bra END", "add.s32 %r4, %r4, 1", "END:", GUARDED[0]],
        [LOAD, "bar.sync 0", COMPARE, "@!%p1 bra END", *GUARDED],
    ],
)
def test_a_comparison_that_guards_no_store_is_not_an_update(code: list[str]) -> None:
    assert update_lines(*code) == []


@pytest.mark.parametrize(
    ("atomic", "lines"),
    [
        ("atom.global.min.s32 %r4, [%rd1], %r3", [2]),
        ("red.global.max.s32 [%rd1], %r3", [2]),
        ("red.global.add.s32 [%rd1], %r3", []),
        ("red.global.min.s32 [%rd2], %r3", []),
        ("st.global.s32 [%rd1], %r3", []),
    ],
)
def test_atomic_minimum_and_maximum_recheck_a_comparison(atomic: str, lines: list[int]) -> None:
    kernel = function(LOAD, COMPARE, "@!%p1 bra END", f"4| {atomic}", "END:")
    assert [i.line for i in kernel.instructions if id(i) in find_rechecks(kernel)] == lines


# -- hazards ----------------------------------------------------------------------------------------------

SOURCE = ["first", " second ", "third", "fourth", "fifth", "sixth", "seventh"]
BLOCK = sentences.BLOCK
WARP = sentences.WARP
GRID = sentences.GRID


class Case:
    """Findings of a kernel written by hand; segment n is of block n, site n is of instruction n."""

    def __init__(
        self, *code: str, others: Sequence[ir.Instruction] = (), unit: int = 4, mib: int = 1
    ) -> None:
        self.function = function(*code)
        self.instructions = [*self.function.instructions, *others]
        self.memory = DeviceMemory(mib << 20)
        self.start = self.memory.malloc(4096)
        self.memory.track_allocation(self.start, 256, "float32 array of shape (64,)")
        self.findings = Findings(self.memory, unit)
        without_access = ("shfl", "vote", "add", "ret", "bar", "bra", "setp")
        self.findings.sites = [
            make_register_site(n, i) if i.root in without_access else make_site(n, i)
            for n, i in enumerate(self.instructions)
        ]
        self.findings.ordering = Ordering(32, 64, structures.Checker())
        self.findings.ordering.segment_columns[0, :64] = np.arange(64)
        self.names = names(self.memory, parameter_by_address={self.start: "x"})

    def race(
        self,
        first: int,
        second: int,
        kind: str = "RAW",
        relation: int = BLOCK,
        *,
        word: int = 16,
        space: str = "shared",
        agree: bool = False,
        count: int = 1,
        threads: tuple[int, int] = (3, 5),
        blocks: tuple[int, int] = (1, 2),
        start: int = 0,
        what: int = structures.RACE,
    ) -> Case:
        writes = {"WAW": (True, True), "RAW": (True, False), "WAR": (False, True)}[kind]
        earlier, later = (
            Access(block, index, thread)
            for block, index, thread in zip(blocks, (first, second), threads, strict=True)
        )
        array = self.start if space == "global" and not start else start
        self.findings.add(
            FindingOccurrences(what, space, count, array, word, later, earlier, writes, relation, agree)
        )
        return self

    def hazards(self, **changes: Any) -> list[Hazard]:
        fields = {
            "findings": self.findings,
            "kernel_name": "k",
            "source_lines": SOURCE,
            "grid": (2, 2, 4),
            "block": (4, 2, 4),
            "element_names": self.names,
            "control_flow": cfg.build_flow(self.function),
            "function": self.function,
            "updates_by_id": find_updates(self.function),
            "recheck_ids": find_rechecks(self.function),
        } | changes
        return Report(**fields).hazards()

    def hazard(self, **changes: Any) -> Hazard:
        (hazard,) = self.hazards(**changes)
        return hazard


SHARED = ("2| st.shared.u32 [%r2], %r1", "5| ld.shared.u32 %r3, [%r4]", "6| st.shared.u32 [%r6], %r5")
GLOBAL = ("2| st.global.u32 [%rd2], %r1", "5| ld.global.u32 %r3, [%rd4]", "6| st.global.u32 [%rd6], %r5")


def test_a_race_names_lines_threads_blocks_and_element() -> None:
    hazard = Case(*SHARED).race(0, 1, word=19, count=7, threads=(9, 30), blocks=(3, 6)).hazard()
    assert (hazard.tool, hazard.kind, hazard.severity) == ("race", "RAW", "error")
    assert hazard.first == Place(2, "second", (1, 1, 0), (1, 0, 1))
    assert hazard.second == Place(5, "fifth", (0, 1, 1), (2, 1, 3))
    assert (hazard.space, hazard.address, hazard.array, hazard.count) == ("shared", 76, "s[0][3]", 7)
    assert hazard.message.startswith(
        "thread (2, 1, 3) of block (0, 1, 1) reads s[0][3], which thread (1, 0, 1) wrote"
    )
    ends = Case("st.shared.u32 [%r2], %r1", "7| ld.shared.u32 %r3, [%r4]", "8| ld.shared.u32 %r3, [%r4]")
    last, past = ends.race(0, 1).race(0, 2).hazards()
    assert (last.first.line, last.first.source, last.second.source) == (0, "", "seventh")
    assert (past.second.line, past.second.source) == (8, "")


@pytest.mark.parametrize(
    ("kind", "relation", "agree", "severity"),
    [
        ("RAW", WARP, False, "warning"),
        ("WAR", WARP, False, "warning"),
        ("WAW", WARP, False, "error"),
        ("RAW", BLOCK, False, "error"),
        ("WAW", BLOCK, False, "error"),
        ("WAW", BLOCK, True, "info"),
        ("WAW", WARP, True, "info"),
        ("RAW", BLOCK, True, "error"),
        ("WAR", GRID, False, "error"),
    ],
)
def test_severity_of_each_kind_of_race(kind: str, relation: int, agree: bool, severity: str) -> None:
    hazard = Case(*GLOBAL).race(0, 1, kind, relation, space="global", agree=agree).hazard()
    assert (hazard.kind, hazard.severity) == (kind, severity)
    assert (hazard.space, hazard.array) == ("global", "x[16]")
    assert ("same value" in hazard.message) == (severity == "info")


@pytest.mark.parametrize(
    ("second", "kind", "relation", "advice"),
    [
        (1, "RAW", BLOCK, "Put __syncthreads() between lines 2 and 5."),
        (1, "RAW", WARP, "Put __syncwarp() between lines 2 and 5: "),
        (0, "WAR", BLOCK, "Read into a variable, call __syncthreads(), then write."),
        (0, "WAR", WARP, "Read into a variable, call __syncwarp(), then write"),
        (0, "WAW", BLOCK, "Let one thread write it, or give each thread its own element."),
        (0, "WAW", GRID, "at the same time. Let one thread write it, or use an atomic."),
        (1, "RAW", GRID, "Write to another array, use an atomic, or launch two kernels."),
    ],
)
def test_the_suggested_fix_covers_the_scope_of_the_race(
    second: int, kind: str, relation: int, advice: str
) -> None:
    assert advice in Case(*GLOBAL).race(0, second, kind, relation, space="global").hazard().message


def test_the_suggested_fix_covers_all_races_at_the_same_lines() -> None:
    def messages(*races: tuple[int, int, str, int, str]) -> list[str]:
        case = Case(*SHARED, *GLOBAL)
        for first, second, kind, relation, space in races:
            case.race(first, second, kind, relation, space=space)
        return [hazard.message for hazard in case.hazards()]

    warp, block = messages((0, 1, "RAW", WARP, "shared"), (1, 0, "WAR", BLOCK, "shared"))
    assert "Put __syncthreads() between" in warp
    assert "Put __syncthreads() between" in block
    warp, block = messages((0, 1, "RAW", WARP, "shared"), (2, 1, "RAW", BLOCK, "shared"))
    assert ("__syncwarp()" in warp, "__syncthreads()" in block) == (True, True)
    warp, grid = messages((0, 1, "RAW", WARP, "shared"), (3, 4, "RAW", GRID, "global"))
    assert ("__syncwarp()" in warp, "Blocks run in any order" in grid) == (True, True)


def test_a_flag_is_suggested_only_for_races_between_warps() -> None:
    for relation in (WARP, BLOCK, GRID):
        case = Case(*GLOBAL).race(0, 1, "RAW", relation, space="global")
        assert "wait for a flag" not in case.hazard().message
        case.findings.ordering.has_messages = True
        assert ("wait for a flag" in case.hazard().message) == (relation == BLOCK)


def test_races_of_all_scopes_at_one_line_pair_are_one_hazard() -> None:
    case = Case(*GLOBAL).race(0, 1, "RAW", WARP, space="global", count=3, threads=(1, 2))
    case.race(0, 1, "RAW", GRID, space="global", count=4, threads=(3, 4)).race(0, 1, "RAW", BLOCK, count=5)
    wide, shared = case.hazards()
    assert (wide.count, wide.first.thread, wide.space) == (7, (3, 0, 0), "global")
    assert (shared.count, shared.space) == (5, "shared")
    case = Case(*GLOBAL).race(0, 2, "WAW", WARP, space="global", agree=True)
    assert case.race(0, 2, "WAW", BLOCK, space="global", agree=True).hazard().severity == "info"
    assert case.race(0, 2, "WAW", BLOCK, space="global", agree=False).hazard().severity == "error"
    case.race(2, 0, "WAW", BLOCK, space="global").race(0, 1, "RAW", space="global")
    assert len(case.hazards()) == 3, "other lines, or the other way round, are others"


def test_races_in_reserved_shared_memory_are_not_reported() -> None:
    def reported(word: int) -> int:
        case = Case(*SHARED).race(0, 1, word=word)
        case.names = names(
            case.memory, shared_offsets={layout.RESERVED_SHARED_NAME: 64}, shared_sizes={}, shared_words=4096
        )
        return len(case.hazards())

    first = 64 // 4
    end = (64 + 1024) // 4
    assert [reported(word) for word in (first - 1, first, end - 1, end)] == [1, 0, 0, 1]


def test_hazard_addresses_are_converted_to_bytes() -> None:
    assert Case(*GLOBAL, unit=2).race(0, 1, space="global", word=3).hazard().address % 256 == 6
    case = Case("2| ld.local.u32 %r1, [%r2]")
    for word in (5, 13):  # of two threads, 8 words each
        case.findings.add(FindingOccurrences(structures.UNWRITTEN, "local", 2, 0, word, Access(0, 0, 4)))
    hazard = case.hazard()
    assert (hazard.array, hazard.count) == ("byte 20 of the thread's own stack", 4)


LOOP_END = ("4| setp.ne.s32 %p1, %r7, 0", "7| @%p1 bra TOP")
BETWEEN = "Put __syncthreads() between lines 2 and 5."
AGAIN = "Put __syncthreads() after line 5, before line 2 runs again."


def in_loop(*code: str, first: int, second: int, kind: str = "RAW") -> str:
    """The remedy of a race in a loop."""
    case = Case("TOP:", *code, *LOOP_END).race(first, second, kind)
    return case.hazard().message.split("the two accesses. ")[1]


def test_suggested_barrier_depends_on_the_barriers_of_the_loop() -> None:
    write, read = SHARED[:2]
    assert in_loop(write, read, first=0, second=1) == BETWEEN
    useless = in_loop(write, "3| bar.sync 0", "4| bar.sync 0", read, first=0, second=3)
    assert "barrier in line 3 " in useless
    assert AGAIN in useless
    for barrier in ("2| bar.sync 0", "5| bar.sync 0", "6| bar.sync 0"):
        assert in_loop(write, "3| bar.sync 0", read, barrier, first=0, second=2) == BETWEEN
    assert in_loop(write, "3| bar.warp.sync -1", read, first=0, second=2) == BETWEEN
    assert in_loop(write, read, first=1, second=0, kind="WAR") == AGAIN
    assert in_loop(write, read, "6| bar.sync 0", first=1, second=0, kind="WAR") == BETWEEN


def test_barriers_outside_the_loop_do_not_change_the_suggestion() -> None:
    after = Case(SHARED[0], "3| bar.sync 0", SHARED[1]).race(0, 2).hazard()
    assert after.message.endswith(BETWEEN)
    assert Case(*SHARED[:2]).race(1, 0, "WAR").hazard().message.endswith(BETWEEN)
    outer = Case("TOP:", *SHARED[:2], *LOOP_END, "3| bar.sync 0").race(1, 0, "WAR").hazard()
    assert outer.message.endswith(AGAIN)
    called = function("TOP:", *SHARED[:2], *LOOP_END).instructions
    for first in (1, len(called) + 1):  # the read in the kernel or in the called function, the write there
        case = Case("TOP:", *SHARED[:2], *LOOP_END, others=called)
        assert case.race(first, len(called), "WAR").hazard().message.endswith(BETWEEN)


def test_an_unrolled_loop_is_recognized_as_a_loop() -> None:
    write, read = SHARED[:2]
    assert Case(write, read, write, read).race(1, 2, "WAR").hazard().message.endswith(AGAIN)
    for code, first, second in (([write, read, write], 1, 2), ([write, write, read, read], 2, 1)):
        assert Case(*code).race(first, second, "WAR").hazard().message.endswith(BETWEEN)
    repeated = Case(SHARED[2], SHARED[2]).race(0, 0, "WAW").hazard().message
    assert "Put __syncthreads() between two iterations of the loop. If the race remains, let one" in repeated
    assert "iterations" not in Case(SHARED[2]).race(0, 0, "WAW").hazard().message


ATOMICS = (
    *GLOBAL,
    "1| atom.global.cas.b32 %r9, [%rd1], %r2, %r3",
    "3| atom.global.add.u32 %r9, [%rd1], %r2",
    "4| ld.relaxed.gpu.global.u32 %r3, [%rd4]",
)
WRITE, READ, WRITE_2, SWAP, ATOMIC_ADD, STRONG_READ = range(6)
STALE = "The compare-and-swap fails"
OLD_OR_NEW = "the old or the new value"


def atomic_races(*races: tuple[int, int, str, int], space: str = "global") -> list[Hazard]:
    case = Case(*ATOMICS)
    for first, second, kind, relation in races:
        case.race(first, second, kind, relation, space=space)
    return case.hazards()


@pytest.mark.parametrize(
    ("race", "space", "severity", "words"),
    [
        ((SWAP, READ, "RAW", BLOCK), "global", "info", STALE),
        ((READ, SWAP, "WAR", WARP), "global", "info", STALE),
        ((ATOMIC_ADD, READ, "RAW", GRID), "global", "warning", OLD_OR_NEW),
        ((READ, ATOMIC_ADD, "WAR", GRID), "global", "warning", OLD_OR_NEW),
        ((ATOMIC_ADD, READ, "RAW", BLOCK), "global", "error", "Put __syncthreads()"),
        ((ATOMIC_ADD, READ, "RAW", GRID), "shared", "error", ""),
        ((WRITE, READ, "RAW", GRID), "global", "error", ""),
        ((ATOMIC_ADD, WRITE_2, "WAW", GRID), "global", "error", ""),
        ((ATOMIC_ADD, STRONG_READ, "RAW", GRID), "global", "error", ""),
    ],
)
def test_severity_of_plain_reads_that_race_with_atomics(
    race: tuple[int, int, str, int], space: str, severity: str, words: str
) -> None:
    (hazard,) = atomic_races(race, space=space)
    assert hazard.severity == severity
    assert words in hazard.message


def test_atomic_races_within_and_between_blocks_share_a_warning() -> None:
    races = (ATOMIC_ADD, READ, "RAW", BLOCK), (READ, ATOMIC_ADD, "WAR", GRID)
    (hazard,) = atomic_races(*races)
    assert (hazard.severity, hazard.count) == ("warning", 2)
    assert "2 pairs of lines" in hazard.message
    case = Case(*ATOMICS).race(ATOMIC_ADD, READ, "RAW", BLOCK, space="global")
    case.race(READ, ATOMIC_ADD, "WAR", GRID, space="global", start=case.start + 512)
    assert [hazard.severity for hazard in case.hazards()] == ["error", "warning"], "another array"


def test_a_read_that_an_atomic_rechecks_is_only_an_info() -> None:
    case = Case(*ATOMICS).race(ATOMIC_ADD, READ, "RAW", BLOCK, space="global")
    hazard = case.hazard(recheck_ids={id(case.function.instructions[READ])})
    assert (hazard.severity, "The atomic compares the value again" in hazard.message) == ("info", True)
    assert case.hazard(recheck_ids={id(case.function.instructions[ATOMIC_ADD])}).severity == "error"


def test_plain_writes_to_a_compare_and_swap_array_are_a_warning() -> None:
    mixed, stale = atomic_races((WRITE, READ, "RAW", BLOCK), (SWAP, READ, "RAW", BLOCK))
    assert (mixed.severity, stale.severity) == ("warning", "info")
    assert "Compare-and-swaps change the same array" in mixed.message
    other, _ = atomic_races((WRITE, READ, "RAW", BLOCK), (ATOMIC_ADD, READ, "RAW", GRID))
    assert other.severity == "error"
    case = Case(*ATOMICS).race(WRITE, READ, space="global").race(SWAP, READ, start=1 << 20, space="global")
    assert case.hazards()[0].severity == "error", "another array is swapped"
    case = Case(*ATOMICS).race(WRITE, READ).race(SWAP, READ)
    assert case.hazards()[0].severity == "error", "shared memory has one start"


def test_a_lost_update_is_one_hazard() -> None:
    code = ["2| ld.global.u32 %r1, [%rd1]", "4| add.s32 %r2, %r1, 1", "st.global.u32 [%rd1], %r2"]
    case = Case(*code, ATOMICS[SWAP]).race(0, 2, "WAR", WARP, space="global", count=2)
    case.race(2, 0, "RAW", GRID, space="global", count=3).race(2, 2, "WAW", BLOCK, space="global", count=4)
    hazard = case.hazard()
    assert (hazard.kind, hazard.severity, hazard.count) == ("lost update", "error", 9)
    assert (hazard.first.line, hazard.second.line, hazard.array) == (4, 2, "x[16]")
    assert "Use atomicAdd(&x[16], ...)." in hazard.message
    assert sentences.LOCK_ADVICE in hazard.message, "the compare-and-swap may be a lock"
    assert sentences.LOCK_ADVICE not in Case(*code).race(0, 2, "WAR", space="global").hazard().message
    read = Case(*code, "6| ld.global.u32 %r3, [%rd4]").race(2, 3, "RAW", space="global").hazard()
    assert read.kind == "RAW", "a read that writes nothing back loses none"
    swapped = Case(*code, ATOMICS[SWAP]).race(0, 2, "WAR", space="global").race(3, 0, "RAW", space="global")
    assert [hazard.kind for hazard in swapped.hazards()] == ["lost update", "RAW"]


def test_hazards_of_uninitialized_reads_and_inactive_lanes() -> None:
    case = Case("2| ld.global.u32 %r1, [%rd1]", "3| shfl.sync.idx.b32 %r1, %r2, 3, 31, -1")
    case.findings.add(FindingOccurrences(structures.UNWRITTEN, "global", 3, case.start, 9, Access(1, 0, 5)))
    case.findings.add_absent_lane(Access(2, 1, 6), 17)
    case.findings.add_absent_lane(Access(3, 1, 7), 18)
    unwritten, absent = case.hazards()
    assert (unwritten.tool, unwritten.kind, unwritten.severity) == ("init", "uninitialised read", "warning")
    assert (unwritten.second.line, unwritten.array, unwritten.count) == (2, "x[9]", 3)
    assert "cp.zeros" in unwritten.message
    assert (absent.tool, absent.kind, absent.severity) == ("sync", "shuffle from an absent lane", "warning")
    assert (absent.second.line, absent.second.thread, absent.count) == (3, (2, 1, 0), 2)
    assert "lane 17" in absent.message
    case = Case("3| vote.sync.ballot.b32 %r1, %p1, -1")
    case.findings.add_absent_lane(Access(2, 0, 6), 17)
    assert (case.hazard().kind, case.hazard().severity) == ("mask names an absent lane", "warning")


@pytest.mark.parametrize(
    ("instruction", "index", "words"),
    [
        ("2| st.global.u32 [%rd1], %r1", -3, ["writes", "12 bytes before its start"]),
        ("2| ld.global.u32 %r1, [%rd1]", 64, ["reads element 64", "0 bytes past its end"]),
    ],
)
def test_hazard_of_an_access_outside_its_array(instruction: str, index: int, words: list[str]) -> None:
    case = Case()
    bounds = (case.start, case.start + 256)
    case.memory.untrack_allocation(case.start)
    case.memory.track_allocation(case.start, 256, "float32 array of shape (64,) (parameter y)")
    case.names = names(case.memory)
    case.findings.sites = [make_site(0, function(instruction).instructions[0], bounds)]
    case.findings.add(
        FindingOccurrences(structures.OUTSIDE_ARRAY, "global", 1, case.start, index, Access(0, 0, 1))
    )
    hazard = case.hazard()
    assert (hazard.tool, hazard.kind, hazard.severity) == ("memory", "outside its array", "error")
    for text in (*words, "through a pointer to the float32 array of shape (64,) (parameter y)"):
        assert text in hazard.message


@pytest.mark.parametrize(
    ("second", "threads", "words"),
    [
        (1, (3, 5), ["reads s[0][0]", "thread (3, 0, 0)", "lines 2 and 4", "then call __syncthreads()"]),
        (2, (3, 5), ["writes s[0][0]"]),
        (3, (3, 5), ["copies to s[0][0]"]),
        (0, (3, 5), ["Wait for the copy before"]),
        (2, (5, 5), ["barrier's wait)."]),  # its own thread need not wait for others
    ],
)
def test_hazard_of_an_access_before_a_copy_completes(
    second: int, threads: tuple[int, int], words: list[str]
) -> None:
    code = [
        "2| st.async.shared.u32 [%r1], %r5",
        "4| ld.shared.u32 %r2, [%r3]",
        "st.shared.u32 [%r3], %r2",
        "6| st.async.shared.u32 [%r1], %r5",
    ]
    hazard = Case(*code).race(0, second, what=structures.PENDING_COPY, threads=threads).hazard()
    assert (hazard.tool, hazard.kind, hazard.severity) == ("race", "copy not awaited", "error")
    assert (hazard.space, hazard.first) == (
        "shared",
        Place(2, "second", (1, 0, 0), (threads[0] % 4, threads[0] // 4, 0)),
    )
    for text in ("__pipeline_wait_prior", *words):
        assert text in hazard.message
    assert sentences.COPY_WAIT_ADVICE in Case(*code).race(0, 1).hazard().message
    assert sentences.COPY_WAIT_ADVICE not in Case(*code).race(2, 3, "WAW").hazard().message


def test_hazards_of_accesses_outside_device_heap_blocks() -> None:
    case = Case("2| st.global.u32 [%rd1], %r1", "3| ld.global.u32 %r1, [%rd1]", mib=16)
    heap = case.memory.open_heap()
    with heap.keep_freed_blocks():
        first = heap.allocate_block(64)
        second = heap.allocate_block(1500)
        heap.free_block(first)
        case.findings.add_outside_block(Access(0, 0, 1), second + 1500)
        case.findings.add_outside_block(Access(0, 0, 1), second + 1600)
        case.findings.add_outside_block(Access(0, 1, 1), first + 63)
        case.findings.add_outside_block(Access(0, 1, 1), first + 64)
        past, freed, other = case.hazards()
    assert (past.tool, past.kind, past.severity, past.count) == ("memory", "out of bounds", "error", 2)
    assert past.array == "byte 1,500 of a block of 1,500 bytes on the device heap"
    assert f"writes 4 bytes at {past.array}" in past.message
    assert freed.kind == "use after free"
    assert "reads byte 63 of a block of 64 bytes" in freed.message
    assert (other.kind, other.array) == ("out of bounds", "device heap")


@pytest.mark.parametrize(
    ("arrival", "other", "in_loop", "severity"),
    [
        (0, None, False, "error"),
        (0, 1, False, "error"),
        (2, None, False, "warning"),  # which compute-sanitizer does not see
        (0, None, True, "warning"),
        (0, 1, True, "error"),
    ],
)
def test_hazard_of_a_barrier_that_some_threads_do_not_reach(
    arrival: int, other: int | None, in_loop: bool, severity: str
) -> None:
    code = ["2| bar.sync 0", "3| bar.sync 0", "3| barrier.cta.red.popc.aligned.u32 %r1, 0, %p1"]
    case = Case(*(["TOP:"] if in_loop else []), *code, *(LOOP_END if in_loop else ()))
    instructions = case.function.instructions
    rival = None if other is None else Arrival(0, instructions[other], 0b1000)
    for block in (6, 7):
        case.findings.add_divergent_barrier(block, Arrival(1, instructions[arrival], 0b1100), rival)
    hazard = case.hazard()
    assert (hazard.tool, hazard.kind, hazard.severity) == ("sync", "divergent barrier", severity)
    assert (hazard.second.block, hazard.second.thread, hazard.count) == ((0, 1, 1), (2, 0, 4), 2)
    assert hazard.first == (None if other is None else Place(3, "third", (0, 1, 1), (3, 0, 0)))
    assert ("line 3" if other is not None else "with 2 of the threads of its warp") in hazard.message
    assert ("compute-sanitizer does not report it" in hazard.message) == (severity == "warning")
