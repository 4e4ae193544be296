"""How findings become hazards: elements, names, sentences and remedies of findings made by hand."""

from __future__ import annotations

import ctypes
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
from virtualgpu.sanitizer.checker import Access, Arrival, Occurrences
from virtualgpu.sanitizer.findings import Findings
from virtualgpu.sanitizer.ordering import Ordering
from virtualgpu.sanitizer.report import declarations as declared
from virtualgpu.sanitizer.report import sentences
from virtualgpu.sanitizer.report.declarations import declarations
from virtualgpu.sanitizer.report.hazards import Report
from virtualgpu.sanitizer.report.names import Names, source_name
from virtualgpu.sanitizer.report.updates import Update, checks, updates
from virtualgpu.sanitizer.sites import register_site, site

# -- declarations -----------------------------------------------------------------------------------------

C = {
    "char": ctypes.c_char,
    "bool": ctypes.c_bool,
    "int8_t": ctypes.c_int8,
    "uint8_t": ctypes.c_uint8,
    "unsigned char": ctypes.c_ubyte,
    "short": ctypes.c_short,
    "unsigned short": ctypes.c_ushort,
    "int16_t": ctypes.c_int16,
    "uint16_t": ctypes.c_uint16,
    "int": ctypes.c_int,
    "unsigned": ctypes.c_uint,
    "unsigned int": ctypes.c_uint,
    "uint": ctypes.c_uint,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "long": ctypes.c_int64,
    "long long": ctypes.c_longlong,
    "unsigned long long": ctypes.c_ulonglong,
    "size_t": ctypes.c_uint64,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "float*": ctypes.c_uint64,
}
HALVES = ("half", "__half", "__nv_bfloat16", "nv_bfloat16")
PARTS = {"char": 1, "uchar": 1, "half": 2, "float": 4, "int": 4, "uint": 4, "double": 8}
VECTORS = (
    "half2",
    "float2",
    "int2",
    "uint2",
    "double2",
    "float3",
    "int3",
    "uint3",
    "float4",
    "int4",
    "uint4",
    "char4",
    "uchar4",
)


def element(source: str, offset: int, size_bytes: int = 0, name: str = "a") -> str:
    return declarations(source).element(name, offset, size_bytes)


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        *((kind, ctypes.sizeof(of)) for kind, of in C.items()),
        *((kind, np.dtype(np.float16).itemsize) for kind in HALVES),
        ("__half2", 4),
        *((kind, int(kind[-1]) * PARTS[kind[:-1]]) for kind in VECTORS),
    ],
)
def test_an_element_is_as_wide_as_its_type(kind: str, size: int) -> None:
    assert element(f"__shared__ {kind} a[3];", 2 * size, 3 * size) == f"a[2]{'.x' if kind in VECTORS else ''}"
    assert element(f"extern __shared__ {kind} a[];", 5 * size).startswith("a[5]")
    assert element(f"extern __shared__ {kind} a[];", 5 * size - 1) != element(
        f"extern __shared__ {kind} a[];", 5 * size
    )
    assert not element(f"__shared__ {kind} a[3];", 0, 3 * size + 3)


@pytest.mark.parametrize("kind", VECTORS)
def test_parts_of_vectors_have_their_letters(kind: str) -> None:
    count = int(kind[-1])
    part = PARTS[kind[:-1]]
    for n in range(count):
        at = count * part + n * part
        assert element(f"__shared__ {kind} a[2];", at, 2 * count * part) == f"a[1].{'xyzw'[n]}"
        if part > 1:
            middle = element(f"__shared__ {kind} a[2];", at + 1, 2 * count * part)
            assert middle == f"byte {n * part + 1} of a[1]"


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
        ("16u", 16),
        ("16UL + 2ull", 18),
        ("int(4)", None),
        ("1 << 64", None),
        ("2 + (1 >> 64)", None),
        ("4 / 0", None),
        ("4 % 0", None),
        ("0", None),
        ("2 - 3", None),
        ("1", 1),
        ("2.5", None),
        ("2 * f(3)", None),
        ("2 & 3", None),
        ("N", None),
        ("2 +", None),
        ("-1 + 4", None),
        ("FOUR", 4),
        ("FOUR * EIGHT", 32),
        ("CALL", None),
        ("TWO + THREE", 5),
        ("2 + (1 >> 63)", 2),
    ],
)
def test_an_extent_is_worth_what_c_makes_of_it(extent: str, value: int | None) -> None:
    source = (
        "#define FOUR 4\n#define EIGHT \\\n (FOUR + FOUR)\n#define CALL f(FOUR)\n#define F(x) x\n"
        f"const int TWO = 2, THREE = TWO + 1;\n__shared__ char first[3][{extent}];"
    )
    # Where the launch says how large it is, nothing but the declaration tells the rows' length.
    spelled = "" if value is None else f"first[1][{value - 1}]"
    assert element(source, 2 * (value or 3) - 1, 0, "first") == spelled
    if value is not None:
        assert element(source, 2 * value - 1, 3 * value, "first") == spelled
        assert not element(source, 2 * value - 1, 3 * value + 1, "first")
        assert element(source, 2 * value, 0, "first") == "first[2][0]"


def test_one_value_that_the_source_does_not_give_comes_from_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(extents: str, count: int) -> str:
        return element(f"__shared__ float a{extents};", 4 * (count - 1), 4 * count)

    assert [of("[N]", n) for n in (1, 5)] == ["a[0]", "a[4]"]
    assert [of("[N][N]", n) for n in (9, 10, 16)] == ["a[2][2]", "", "a[3][3]"]
    assert [of("[2][N + 1]", n) for n in (2, 4, 6, 7)] == ["", "a[1][1]", "a[1][2]", ""]
    assert of("[N][M]", 4) == ""
    assert element("__shared__ Node a[N];", 4, 8) == "", "of which no element's size is known either"
    assert element("extern __shared__ float a[N];", 4, 0) == ""
    monkeypatch.setattr(declared, "_MAX_TRIALS", 8)
    assert [of("[N]", n) for n in (7, 8, 9)] == ["a[6]", "a[7]", ""]


def test_what_names_itself_counts_as_not_given() -> None:
    source = "#define A B\n#define B A\n#define C C\n__shared__ int a[A], b[C];\n"
    assert element(source, 8, 16) == "a[2]"
    assert element(source, 8, 16, "b") == "b[2]"
    assert not element(source, 8, 0)


def test_an_open_extent_is_all_that_there_is() -> None:
    source = "extern __shared__ float a[][4];\n__device__ int b[][N];"
    assert element(source, 4 * 9) == "a[2][1]"
    assert element(source, 4 * 9, 4 * 12) == "a[2][1]"
    assert element(source, 4 * 9, 4 * 13) == ""
    assert element(source, 4, 16, "b") == "", "its rows may have any length"
    assert element("extern __shared__ Node a[];", 4) == ""


def test_structures_are_counted_by_their_size() -> None:
    source = "__shared__ Node a[4];\n__shared__ Node one;"
    assert [element(source, at, 48) for at in (0, 11, 12, 47)] == [
        "a[0]",
        "byte 11 of a[0]",
        "a[1]",
        "byte 11 of a[3]",
    ]
    assert element(source, 0, 50) == ""
    assert element(source, 5, 12, "one") == "byte 5 of one"
    assert element(source, 0, 12, "one") == "one"


def test_several_declarators_of_one_declaration() -> None:
    source = "__shared__ float a[2],b[3], *c[2], d, &r, e[2][2];\n__device__ int** f[2], g[3];"
    source += "\n__constant__ Pair<int, 2> p[2], q[3];\n__managed__ int m[2] = {1, 2};"
    assert element(source, 4, 8) == "a[1]"
    assert element(source, 8, 12, "b") == "b[2]"
    assert element(source, 8, 16, "c") == "c[1]"
    assert element(source, 0, 4, "d") == "d"
    assert element(source, 8, 16, "e") == "e[1][0]"
    assert element(source, 8, 16, "f") == "f[1]"
    assert element(source, 8, 12, "g") == "g[2]"
    assert [element(source, 8, size, name) for size, name in ((16, "p"), (24, "q"))] == ["p[1]", "q[1]"]
    assert element(source, 4, 8, "m") == "m[1]"


def test_declarations_that_agree_are_one_and_others_none() -> None:
    source = (
        "__shared__ float a[2][4];\n__shared__ float a[2][4];\n__shared__ float b[8];\n__shared__ int b[2];"
    )
    assert element(source, 20, 32) == "a[1][1]"
    assert element(source, 20, 32, "b") == "b[5]"
    assert element(source, 4, 8, "b") == "b[1]"
    assert element("__shared__ float a[2][4];\n__shared__ float a[8];", 20, 32) == ""


# -- names ------------------------------------------------------------------------------------------------


def names(memory: DeviceMemory, **more: Any) -> Names:
    given = {
        "declared": declarations("__shared__ float s[2][4], t[3];\n__device__ int box[2], other[3];"),
        "offsets": {"_ZN1kE1sE": 0, "_ZZ1kvE1s": 64, "t": 96, "u": 128},
        "sizes": {"_ZZ1kvE1s": 32, "t": 12, "u": 8},
        "pointers": {},
        "words": 64,
        "local_words": 8,
    } | more
    return Names(memory=memory, **given)


def test_names_of_shared_memory() -> None:
    at = names(DeviceMemory(1 << 20), offsets={"_ZZ1kvE1s": 64, "t": 96, "u": 128}).shared
    assert at(63) == "byte 63 of shared memory"
    assert at(64) == "s[0][0]"
    assert at(64 + 20) == "s[1][1]"
    assert at(95) == "byte 3 of s[1][3]"
    assert at(96) == "t[0]"
    assert at(104) == "t[2]"
    assert at(128 + 1234) == "byte 1,234 of shared array u"
    assert names(DeviceMemory(1 << 20), offsets={}).shared(1234) == "byte 1,234 of shared memory"


def test_names_of_the_devices_memory() -> None:
    memory = DeviceMemory(1 << 20)
    assert names(memory).device(1 << 40) == ""
    starts = [memory.malloc(4096) for _ in range(5)]
    labels = (
        "float32 array of shape (4, 8)",
        "float64 array of shape (16,)",
        "module variable box",
        "module variable _ZN2abE1s",
        "copy of something",
    )
    for start, size, label in zip(starts, (128, 128, 8, 8, 4096), labels, strict=True):
        memory.track(start, size, label)
    matrix, row, box, strange, plain = starts
    at = names(memory, pointers={matrix: "m", row: "r", row + 64: "half"}).device
    assert at(matrix) == "m[0] ([0, 0] of shape (4, 8))"
    assert at(matrix + 4 * 13) == "m[13] ([1, 5] of shape (4, 8))"
    assert at(matrix + 4 * 31) == "m[31] ([3, 7] of shape (4, 8))"
    assert at(matrix + 4 * 32) == "m[32]", "past the array's end"
    assert at(matrix + 2) == "element 0 of the float32 array of shape (4, 8)"
    assert at(row + 56) == "r[7]"
    assert at(row + 64) == "half[0]"
    assert at(row + 80) == "half[2]"
    assert at(box + 4) == "box[1]"
    assert at(box + 5) == "byte 1 of box[1]"
    assert at(strange + 4) == "byte 4 of the module variable s"
    assert at(plain + 1234) == "byte 1,234 of the copy of something"
    bare = names(memory, pointers={matrix + 64: "m"}).device
    assert bare(matrix + 4 * 15) == "element 15 of the float32 array of shape (4, 8)"
    assert bare(matrix + 4 * 17) == "m[1]", "as the kernel counts, from where its pointer points"


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("tile", "tile"),
        ("_ZZ1kvE1s", "s"),
        ("_ZZ4copyPKfE4tile", "tile"),
        ("_ZZ1kE4tile_0", "tile"),
        ("_Zodd", "_Zodd"),
        ("E4tile", "E4tile"),
    ],
)
def test_a_mangled_name_ends_with_what_the_source_calls_it(symbol: str, name: str) -> None:
    assert source_name(symbol) == name


# -- sentences --------------------------------------------------------------------------------------------

ONE = Place(4, "", (1, 0, 0), (3, 0, 0))
TWO = Place(6, "", (2, 0, 0), (5, 0, 0))
SAME = Place(4, "", (2, 0, 0), (5, 0, 0))


def race(
    kind: str,
    where: sentences.RemedyContext,
    *,
    same: bool = False,
    agree: bool = False,
    sort: str = "",
    pairs: int = 0,
    back: bool = False,
) -> str:
    first, second = (TWO, ONE) if back else (ONE, SAME if same else TWO)
    return sentences.race_message(kind, first, second, "s[1]", where, agree, sort, pairs)


FLAGGED = (
    "Blocks run in any order and at once: write to another array, use an atomic, or launch twice."
    f"{sentences.SIGNAL}"
)
OWN = "et one thread write it, or give each an element of its own."
VARIABLE = "ead into a variable, then __syncthreads(), then write."
AGAIN = "Put __syncthreads() after line 6, before line 4 runs again."
REASON = "lanes of a warp do not wait for each other by themselves."
BEHIND = (
    "; where not all threads pass, let the second wait for a flag that the first sets afterwards, behind a "
    "fence."
)


def test_a_race_says_who_did_what() -> None:
    block = sentences.RemedyContext(sentences.BLOCK)
    grid = sentences.RemedyContext(sentences.GRID)
    meets = "and nothing says which comes first."
    who = "thread (5, 0, 0) of block (2, 0, 0)"
    assert race("RAW", block).startswith(f"{who} reads s[1] that thread (3, 0, 0) wrote, {meets}")
    assert race("WAR", block).startswith(f"{who} writes s[1] that thread (3, 0, 0) read, {meets}")
    assert race("WAW", grid).startswith(
        f"{who} writes s[1] that thread (3, 0, 0) of block (1, 0, 0) wrote, {meets}"
    )


@pytest.mark.parametrize(
    ("where", "how", "kind", "remedy"),
    [
        ((1,), {}, "RAW", "Put __syncthreads() between lines 4 and 6."),
        ((1,), {"back": True}, "RAW", "Put __syncthreads() between lines 4 and 6."),
        ((0,), {}, "RAW", f"Put __syncwarp() between lines 4 and 6: {REASON}"),
        ((3,), {}, "WAR", f"Put __syncthreads() between lines 4 and 6{BEHIND}"),
        ((1,), {"same": True}, "RAW", "Read into a variable, then __syncthreads(), then write."),
        ((0,), {"same": True}, "WAR", f"Read into a variable, then __syncwarp(), then write: {REASON}"),
        ((1,), {"same": True}, "WAW", "Let one thread write it, or give each an element of its own."),
        ((1,), {}, "WAW", "Put __syncthreads() between lines 4 and 6."),
        ((2,), {}, "WAW", "Blocks run in any order and at once: let one thread write it, or use an atomic."),
        (
            (2,),
            {},
            "RAW",
            "Blocks run in any order and at once: write to another array, use an atomic, or launch twice.",
        ),
        ((2, False, 0, 0, True), {}, "RAW", FLAGGED),
        (
            (2, False, 0, 0, True, True),
            {},
            "RAW",
            "Write the flag with an atomic, such as atomicExch(), and put __threadfence() before it.",
        ),
        (
            (1, False, 0, 0, False, False, True),
            {},
            "RAW",
            f"Put __syncthreads() between lines 4 and 6.{sentences.LOCK}",
        ),
        (
            (1, True),
            {"same": True},
            "WAW",
            f"Put __syncthreads() between two turns of the loop. If the race remains, l{OWN}",
        ),
        (
            (1, True),
            {"same": True},
            "RAW",
            f"Put __syncthreads() between two turns of the loop. If the race remains, r{VARIABLE}",
        ),
        ((1, True, 0, 7), {"same": True}, "WAR", f"R{VARIABLE}"),
        ((1, True, 0, 7), {"same": True}, "WAW", f"L{OWN}"),
        ((1, True), {}, "RAW", "Put __syncthreads() between lines 4 and 6."),
        ((1, True), {"back": True}, "WAR", AGAIN),
        ((1, True, 5), {}, "RAW", f"The barrier in line 5 does not part two turns of the loop. {AGAIN}"),
        ((1, True, 5, 7), {}, "RAW", "Put __syncthreads() between lines 4 and 6."),
        ((1, True, 0, 7), {"back": True}, "RAW", "Put __syncthreads() between lines 4 and 6."),
        ((1, False, 5, 0), {"back": True}, "RAW", "Put __syncthreads() between lines 4 and 6."),
    ],
)
def test_a_remedy_says_where_the_wait_belongs(
    where: tuple[int, ...], how: dict[str, bool], kind: str, remedy: str
) -> None:
    text = race(kind, sentences.RemedyContext(*where), **how)  # type: ignore[arg-type]
    assert text.split("which comes first. ")[1] == remedy


def test_a_race_that_may_be_meant_says_when_it_does_no_harm() -> None:
    block = sentences.RemedyContext(sentences.BLOCK)
    same = "All of them write the same value, so the result does not depend on it."
    assert race("WAW", block, agree=True).endswith(same)
    assert race("WAW", block, agree=True, sort=sentences.MIXED).endswith(same)
    assert race("RAW", block, agree=True).endswith("between lines 4 and 6.")
    said = {
        sentences.STALE: "fails if the value read is out of date, so it does no harm.",
        sentences.CHECK: "The atomic compares again, so an outdated value does no harm.",
        sentences.WEAK: "as in a search that tries again, wrong where the read needs the last one.",
        sentences.MIXED: "as in the shortening of a path; elsewhere, swap here as well.",
    }
    for sort, end in said.items():
        for kind, agree in (("RAW", True), ("RAW", False), ("WAW", False)):
            assert race(kind, block, agree=agree, sort=sort, pairs=1).endswith(end)
        more = race("WAR", block, sort=sort, pairs=2)
        assert more.endswith(f"{end} 2 pairs of lines meet on this array in this way.")


def test_a_lost_update_names_the_atomic_that_does_the_same() -> None:
    def of(atomic: str, array: str = "h[2]", relation: int = sentences.BLOCK, locks: bool = False) -> str:
        return sentences.update_message(Update(4, 6, atomic), ONE, TWO, array, relation, locks)

    lost = "change it and write it back: one of the two changes can get lost."
    who = "thread (5, 0, 0) of block (2, 0, 0) and thread (3, 0, 0)"
    assert of("atomicAdd") == f"{who} both read h[2], {lost} Use atomicAdd(&h[2], ...)."
    assert of("atomicAdd", relation=sentences.GRID).startswith(f"{who} of block (1, 0, 0) both read h[2], ")
    assert of("atomicMax", "x[9] ([1, 1] of shape (8, 8))").endswith(" Use atomicMax(&x[9], ...).")
    assert of("atomicMax", "element 3 of the array").endswith(" Use atomicMax().")
    other = " Make it one atomic: a loop around atomicCAS() does where no other atomic fits."
    assert of("").endswith(other)
    assert of("none").endswith(other)
    assert " Compare and write in one atomic: atomicCAS(), or atomicMax() and atomicMin()" in of("compare")
    lock = " If a lock guards it, put __threadfence() after the lock is taken and before it is opened."
    assert of("atomicAdd", locks=True).endswith(f" Use atomicAdd(&h[2], ...).{lock}")


def test_sentences_about_threads_that_stay_away() -> None:
    alone = sentences.apart_message(0b1011, None, TWO, False)
    assert alone.startswith(
        "thread (5, 0, 0) of block (2, 0, 0) comes to this barrier with 3 of the threads of its warp; "
    )
    assert alone.endswith("move it out of the branch or the loop that parts them.")
    unseen = " CUDA C++ leaves undefined what happens; compute-sanitizer does not see it."
    assert sentences.apart_message(0b1011, None, TWO, True) == alone + unseen
    meets = (
        "thread (5, 0, 0) of block (2, 0, 0) waits at this barrier while thread (3, 0, 0) waits at the one "
    )
    assert sentences.apart_message(1, ONE, TWO, False).startswith(f"{meets}of line 4. ")
    assert sentences.apart_message(1, ONE, SAME, False).startswith(
        f"{meets}of another place of the same line"
    )
    assert sentences.absent_message(TWO, 7).startswith(
        "thread (5, 0, 0) of block (2, 0, 0) takes a value from lane 7 of its warp, which takes no part"
    )
    assert sentences.unmet_message(TWO, 7).startswith(
        "thread (5, 0, 0) of block (2, 0, 0) names lane 7 of its warp in a mask, and that lane stays away"
    )


@pytest.mark.parametrize(
    ("space", "fix"),
    [
        ("global", "Fill it first, or make it with cp.zeros."),
        ("shared", "Write it, and wait with __syncthreads(), before reading."),
        ("local", "Give the local array a value first."),
    ],
)
def test_what_nothing_has_written_is_to_be_written_first(space: str, fix: str) -> None:
    assert sentences.unwritten_message(space, TWO, "s[1]") == (
        f"thread (5, 0, 0) of block (2, 0, 0) reads s[1], which nothing has written. {fix}"
    )


# -- updates ----------------------------------------------------------------------------------------------


def function(*code: str, head: str = "") -> ir.Function:
    """A kernel of instructions, each with its line of the source in front where it is not the one before."""
    body = []
    for text in code:
        line, _, instruction = text.rpartition("| ")
        body += [f".loc 1 {line} 1"] if line.strip() else []
        body.append(instruction if instruction.endswith(":") else f"{instruction};")
    text = "\n".join(body)
    return parse(
        f".version 8.0\n.target sm_80\n.address_size 64\n{head}\n.visible .entry k()\n{{\n.reg .b32 %r<40>;\n"
        f".reg .b64 %rd<9>;\n.reg .f32 %f<9>;\n.reg .pred %p<9>;\n{text}\nret;\n}}\n"
    ).entries["k"]


LOAD = "2| ld.global.u32 %r1, [%rd1]"
STORE = "3| st.global.u32 [%rd1], %r2"


def found_updates(*code: str) -> list[tuple[int, int, str]]:
    return sorted({(made.load, made.store, made.atomic) for made in updates(function(*code)).values()})


@pytest.mark.parametrize(
    ("made", "atomic"),
    [
        ("add.s32", "atomicAdd"),
        ("sub.s32", "atomicAdd"),
        ("min.s32", "atomicMin"),
        ("max.u32", "atomicMax"),
        ("and.b32", "atomicAnd"),
        ("or.b32", "atomicOr"),
        ("xor.b32", "atomicXor"),
        ("mul.lo.s32", "none"),
        ("shl.b32", "none"),
    ],
)
def test_what_is_made_of_a_load_says_which_atomic_does_the_same(made: str, atomic: str) -> None:
    assert found_updates(LOAD, f"{made} %r2, %r1, %r3", STORE) == [(2, 3, atomic)]
    assert found_updates(LOAD, f"{made} %r2, %r3, %r1", STORE) == [(2, 3, atomic)]


def test_floats_have_no_atomic_minimum() -> None:
    load = "2| ld.global.f32 %f1, [%rd1]"
    store = "3| st.global.f32 [%rd1], %f2"
    assert found_updates(load, "min.f32 %f2, %f1, %f3", store) == [(2, 3, "none")]
    assert found_updates(load, "add.f32 %f2, %f1, %f3", store) == [(2, 3, "atomicAdd")]
    assert found_updates(load, "fma.rn.f32 %f2, %f3, %f4, %f1", store) == [(2, 3, "atomicAdd")]


def test_moves_and_further_steps_are_looked_through() -> None:
    add = "add.s32 %r5, %r1, 1"
    assert found_updates(LOAD, add, "mov.u32 %r2, %r5", STORE) == [(2, 3, "atomicAdd")]
    assert found_updates(LOAD, add, "mul.lo.s32 %r2, %r5, %r6", STORE) == [(2, 3, "none")]
    assert found_updates(LOAD, "mov.u32 %r5, %r1", "sub.s32 %r2, %r5, 3", STORE) == [(2, 3, "atomicAdd")]
    assert found_updates(LOAD, "mov.u32 %r2, %r1", STORE) == [], "what is only copied is no update"


def test_no_update_where_the_store_is_not_made_of_what_lies_there() -> None:
    add = "add.s32 %r2, %r1, 1"
    assert found_updates("2| ld.global.u32 %r1, [%rd2]", add, STORE) == []
    assert found_updates("2| ld.global.u32 %r1, [%rd1+4]", add, STORE) == []
    assert found_updates(add, STORE, LOAD) == [], "loaded afterwards"
    assert found_updates(LOAD, "3| st.global.u32 [%rd1], 7") == []
    assert found_updates(LOAD, "atom.global.add.u32 %r2, [%rd1], %r1", STORE) == [], "an atomic made it"
    assert found_updates(LOAD, "ld.global.u32 %r2, [%rd1+8]", STORE) == []
    assert found_updates("st.global.u32 [%rd1], %r2", LOAD, add) == []


def test_an_update_is_known_by_its_load_and_its_stores() -> None:
    made = function(LOAD, "add.s32 %r2, %r1, 1", STORE, "5| add.s32 %r3, %r1, 2", "st.global.u32 [%rd1], %r3")
    load, _, first, _, second, _ = made.instructions
    found = updates(made)
    assert found == {
        id(load): Update(2, 3, "atomicAdd"),
        id(first): Update(2, 3, "atomicAdd"),
        id(second): Update(2, 5, "atomicAdd"),
    }


def test_a_chain_of_very_many_values_is_not_followed() -> None:
    def chain(count: int) -> list[tuple[int, int, str]]:
        steps = [f"add.s32 %r{n + 1}, %r{n}, 1" for n in range(1, count)]
        return found_updates(LOAD, *steps, f"3| st.global.u32 [%rd1], %r{count}")

    assert chain(23) == chain(24) == [(2, 3, "atomicAdd")]
    assert chain(25) == chain(26) == []


COMPARED = [
    LOAD,
    "setp.gt.s32 %p1, %r3, %r1",
    "@!%p1 bra END",
    "3| st.global.u32 [%rd1], %r3",
    "END:",
]


def test_a_store_behind_a_comparison_with_what_lies_there_is_an_update() -> None:
    assert found_updates(*COMPARED) == [(2, 3, "compare")]
    assert found_updates(LOAD, COMPARED[1], "@%p1 st.global.u32 [%rd1], %r3") == [(2, 2, "compare")]
    swapped = [LOAD, "setp.gt.s32 %p1, %r1, %r3", *COMPARED[2:]]
    assert found_updates(*swapped) == [(2, 3, "compare")]
    both = [
        *COMPARED[:2],
        "setp.ne.s32 %p2, %r4, 0",
        "and.pred %p3, %p1, %p2",
        "@!%p3 bra END",
        *COMPARED[3:],
    ]
    assert found_updates(*both) == [(2, 3, "compare")]
    turned = [*COMPARED[:2], "not.pred %p3, %p1", "@%p3 bra END", *COMPARED[3:]]
    assert found_updates(*turned) == [(2, 3, "compare")]
    either = [*COMPARED[:2], "or.pred %p3, %p2, %p1", "@%p3 bra END", *COMPARED[3:]]
    assert found_updates(*either) == [(2, 3, "compare")]


def test_a_comparison_that_decides_nothing_is_none() -> None:
    assert found_updates(*COMPARED[:2], "@!%p2 bra END", *COMPARED[3:]) == []
    assert found_updates(*COMPARED[:2], COMPARED[3]) == []
    assert found_updates("2| ld.global.u32 %r1, [%rd2]", *COMPARED[1:]) == []
    over = [*COMPARED[:2], "@!%p1 bra END", "add.s32 %r4, %r4, 1", "END:", COMPARED[3]]
    assert found_updates(*over) == [], "the branch ends before the store"
    waits = [LOAD, "bar.sync 0", *COMPARED[1:]]
    assert found_updates(*waits) == [], "a barrier is between"
    warp = [LOAD, "bar.warp.sync -1", *COMPARED[1:]]
    assert found_updates(*warp) == [(2, 3, "compare")]
    replaced = [*COMPARED[:2], "and.pred %p1, %p2, %p3", *COMPARED[2:]]
    assert found_updates(*replaced) == [(2, 3, "compare")]
    steps = ["add.s32 %r5, %r5, 1"] * 22
    assert found_updates(*COMPARED[:2], *steps, *COMPARED[2:]) == [(2, 3, "compare")]
    assert found_updates(*COMPARED[:2], *steps, steps[0], *COMPARED[2:]) == [], "too far above"


def test_loads_that_an_atomic_minimum_compares_again() -> None:
    guard = ["setp.gt.s32 %p1, %r3, %r1", "@!%p1 bra END"]

    def checked(atomic: str) -> list[int]:
        made = function(LOAD, *guard, f"4| {atomic}", "END:")
        return [i.line for i in made.instructions if id(i) in checks(made)]

    assert checked("atom.global.min.s32 %r4, [%rd1], %r3") == [2]
    assert checked("atom.global.max.s32 %r4, [%rd1], %r3") == [2]
    assert checked("red.global.max.s32 [%rd1], %r3") == [2]
    assert checked("red.global.min.s32 [%rd1], %r3") == [2]
    assert checked("red.global.add.s32 [%rd1], %r3") == []
    assert checked("atom.global.add.s32 %r4, [%rd1], %r3") == []
    assert checked("red.global.min.s32 [%rd2], %r3") == []
    assert checked("st.global.s32 [%rd1], %r3") == []


# -- hazards ----------------------------------------------------------------------------------------------

SOURCE = ["first", " second ", "third", "fourth", "fifth", "sixth", "seventh"]
RACE = structures.RACE
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
        self.memory.track(self.start, 256, "float32 array of shape (64,)")
        self.findings = Findings(self.memory, unit)
        self.findings.sites = [
            register_site(n, i)
            if i.root in ("shfl", "vote", "add", "ret", "bar", "bra", "setp")
            else site(n, i)
            for n, i in enumerate(self.instructions)
        ]
        self.findings.ordering = Ordering(32, 64, structures.Checker())
        self.findings.ordering.columns[0, :64] = np.arange(64)
        self.names = names(
            self.memory,
            pointers={self.start: "x"},
            offsets={"s": 64},
            sizes={"s": 32},
            words=64,
            local_words=8,
        )

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
        what: int = RACE,
    ) -> Case:
        wrote = {"WAW": (True, True), "RAW": (True, False), "WAR": (False, True)}[kind]
        one, other = (
            Access(block, at, thread)
            for block, at, thread in zip(blocks, (first, second), threads, strict=True)
        )
        where = self.start if space == "global" and not start else start
        self.findings.add(Occurrences(what, space, count, where, word, other, one, wrote, relation, agree))
        return self

    def report(self, **more: Any) -> Report:
        given = {
            "findings": self.findings,
            "kernel": "k",
            "lines": SOURCE,
            "grid": (2, 2, 4),
            "block": (4, 2, 4),
            "names": self.names,
            "flow": cfg.build(self.function),
            "function": self.function,
            "updates": updates(self.function),
            "checks": checks(self.function),
        } | more
        return Report(**given)

    def hazards(self, **more: Any) -> list[Hazard]:
        return self.report(**more).hazards()

    def hazard(self, **more: Any) -> Hazard:
        (only,) = self.hazards(**more)
        return only


SHARED = ("2| st.shared.u32 [%r2], %r1", "5| ld.shared.u32 %r3, [%r4]", "6| st.shared.u32 [%r6], %r5")
GLOBAL = (
    "2| st.global.u32 [%rd2], %r1",
    "5| ld.global.u32 %r3, [%rd4]",
    "6| st.global.u32 [%rd6], %r5",
)


def test_a_race_as_a_hazard() -> None:
    assert Case(*SHARED).race(0, 1, word=19, count=7, threads=(9, 30), blocks=(3, 6)).hazard() == Hazard(
        tool="race",
        kind="RAW",
        severity="error",
        space="shared",
        kernel="k",
        first=Place(2, "second", (1, 1, 0), (1, 0, 1)),
        second=Place(5, "fifth", (0, 1, 1), (2, 1, 3)),
        address=76,
        array="s[0][3]",
        count=7,
        message="thread (2, 1, 3) of block (0, 1, 1) reads s[0][3] that thread (1, 0, 1) wrote, and nothing "
        "says which comes first. Put __syncthreads() between lines 2 and 5.",
    )


def test_places_past_the_source_have_no_text() -> None:
    made = Case("7| st.shared.u32 [%r2], %r1", "8| ld.shared.u32 %r3, [%r4]", "1| ld.shared.u32 %r3, [%r4]")
    hazard = made.race(0, 1).hazard()
    assert (hazard.first.source, hazard.second.source) == ("seventh", "")
    assert made.race(0, 2).hazards()[1].second.source == "first"
    made = Case("st.shared.u32 [%r2], %r1", "1| ld.shared.u32 %r3, [%r4]").race(0, 1)
    assert made.hazard().first == Place(0, "", (1, 0, 0), (3, 0, 0)), "no line is known"


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
def test_grades(kind: str, relation: int, agree: bool, severity: str) -> None:
    hazard = Case(*GLOBAL).race(0, 1, kind, relation, space="global", agree=agree).hazard()
    assert (hazard.kind, hazard.severity) == (kind, severity)
    assert (hazard.space, hazard.array) == ("global", "x[16]")
    assert "same value" in hazard.message or (kind, agree) != ("WAW", True)


def test_a_remedy_reaches_as_far_as_any_race_at_the_same_lines_of_the_same_space() -> None:
    def messages(*races: tuple[int, int, str, int, str]) -> list[str]:
        made = Case(*SHARED, *GLOBAL)
        for one, other, kind, relation, space in races:
            made.race(one, other, kind, relation, space=space)
        return [hazard.message for hazard in made.hazards()]

    warp, block = messages((0, 1, "RAW", WARP, "shared"), (1, 0, "WAR", BLOCK, "shared"))
    assert "Put __syncthreads() between" in warp
    assert "Put __syncthreads() between" in block
    warp, block = messages((0, 1, "RAW", WARP, "shared"), (2, 1, "RAW", BLOCK, "shared"))
    assert ("__syncwarp()" in warp, "__syncthreads()" in block) == (True, True)
    warp, grid = messages((0, 1, "RAW", WARP, "shared"), (3, 4, "RAW", GRID, "global"))
    assert ("__syncwarp()" in warp, "Blocks run in any order" in grid) == (True, True)


def test_where_flags_are_passed_a_flag_is_advised_between_warps_only() -> None:
    for relation, words in ((WARP, "__syncwarp()"), (BLOCK, "wait for a flag"), (GRID, "Blocks run in any")):
        made = Case(*GLOBAL).race(0, 1, "RAW", relation, space="global")
        assert "wait for a flag" not in made.hazard().message
        made.findings.ordering.has_messages = True
        assert words in made.hazard().message
        assert ("flag" in made.hazard().message) == (relation == BLOCK)


def test_one_pair_of_lines_is_one_hazard_whatever_parts_the_threads() -> None:
    made = Case(*GLOBAL).race(0, 1, "RAW", WARP, space="global", count=3, threads=(1, 2))
    made.race(0, 1, "RAW", GRID, space="global", count=4, threads=(3, 4)).race(0, 1, "RAW", BLOCK, count=5)
    wide, shared = made.hazards()
    assert (wide.count, wide.first.thread, wide.space) == (7, (3, 0, 0), "global")
    assert (shared.count, shared.space) == (5, "shared")
    made = Case(*GLOBAL).race(0, 2, "WAW", WARP, space="global", agree=True)
    made.race(0, 2, "WAW", BLOCK, space="global", agree=False)
    assert made.hazard().severity == "error"
    made = Case(*GLOBAL).race(0, 2, "WAW", WARP, space="global", agree=True)
    assert made.race(0, 2, "WAW", BLOCK, space="global", agree=True).hazard().severity == "info"
    made.race(2, 0, "WAW", BLOCK, space="global").race(0, 1, "RAW", space="global")
    assert len(made.hazards()) == 3, "other lines, or the other way round, are others"


def test_what_the_system_keeps_in_shared_memory_is_not_told() -> None:
    def of(word: int, space: str = "shared") -> int:
        made = Case(*SHARED).race(0, 1, word=word, space=space)
        made.names = names(made.memory, offsets={layout.RESERVED_SHARED: 64}, sizes={}, words=4096)
        return len(made.hazards())

    first = 64 // 4
    past = (64 + 1024) // 4
    assert [of(word) for word in (first - 1, first, past - 1, past)] == [1, 0, 0, 1]
    assert of(first, "global") == 1
    both = Case(*SHARED).race(0, 1, word=first).race(0, 1, "WAR", word=past)
    both.names = names(both.memory, offsets={layout.RESERVED_SHARED: 64}, sizes={}, words=4096)
    assert both.hazard().kind == "WAR", "what was found besides is"
    assert len(Case(*SHARED).race(0, 1, word=first).hazards()) == 1


def test_addresses_of_each_space() -> None:
    assert Case(*GLOBAL, unit=2).race(0, 1, space="global", word=3).hazard().address % 256 == 6
    for words, place in ((64, 5), (5, 0), (4, 1), (0, 0)):
        made = Case(*SHARED).race(0, 1, word=5)
        made.names = names(made.memory, offsets={}, words=words)
        assert (made.hazard().address, made.hazard().array) == (
            4 * place,
            f"byte {4 * place} of shared memory",
        )
        made = Case("2| ld.local.u32 %r1, [%r2]")
        made.findings.add(Occurrences(structures.UNWRITTEN, "local", 2, 0, 5, Access(0, 0, 4)))
        made.names = names(made.memory, local_words=words)
        assert made.hazard().array == f"byte {4 * place} of the thread's own stack"
    made.names = names(made.memory, local_words=4096)
    made.findings.add(Occurrences(structures.UNWRITTEN, "local", 2, 0, 600, Access(0, 0, 4)))
    assert made.hazard().count == 4


LOOP = ("TOP:", "4| setp.ne.s32 %p1, %r7, 0", "7| @%p1 bra TOP")


def in_loop(*code: str, first: int, second: int, **more: Any) -> str:
    made = Case("TOP:", *code, *LOOP[1:]).race(first, second, **more)
    return made.hazard().message.split("comes first. ")[1]


def test_the_barriers_of_a_loop_decide_where_another_belongs() -> None:
    write, read = SHARED[:2]
    assert in_loop(write, read, first=0, second=1) == "Put __syncthreads() between lines 2 and 5."
    assert in_loop(write, "3| bar.sync 0", read, first=0, second=2) == (
        "The barrier in line 3 does not part two turns of the loop. Put __syncthreads() after line 5, before "
        "line 2 runs again."
    )
    two = in_loop(write, "3| bar.sync 0", "4| bar.sync 0", read, first=0, second=3)
    assert two.startswith("The barrier in line 3 does not part"), "the first of several"
    for barrier in ("2| bar.sync 0", "5| bar.sync 0", "6| bar.sync 0"):
        both = in_loop(write, "3| bar.sync 0", read, barrier, first=0, second=2)
        assert both == "Put __syncthreads() between lines 2 and 5."
    warp = in_loop(write, "3| bar.warp.sync -1", read, first=0, second=2)
    assert warp == "Put __syncthreads() between lines 2 and 5."
    back = in_loop(write, read, first=1, second=0, kind="WAR")
    assert back == "Put __syncthreads() after line 5, before line 2 runs again."
    last = in_loop(write, read, "6| bar.sync 0", first=1, second=0, kind="WAR")
    assert last == "Put __syncthreads() between lines 2 and 5."


def test_outside_of_a_loop_its_barriers_do_not_count() -> None:
    after = Case(SHARED[0], "3| bar.sync 0", SHARED[1]).race(0, 2).hazard()
    assert after.message.endswith("Put __syncthreads() between lines 2 and 5.")
    back = Case(*SHARED[:2]).race(1, 0, "WAR").hazard()
    assert back.message.endswith("Put __syncthreads() between lines 2 and 5.")
    outer = Case("TOP:", *SHARED[:2], *LOOP[1:], "3| bar.sync 0").race(1, 0, "WAR").hazard()
    assert outer.message.endswith("Put __syncthreads() after line 5, before line 2 runs again.")
    called = function("TOP:", *SHARED[:2], *LOOP[1:]).instructions
    other = Case("TOP:", *SHARED[:2], *LOOP[1:], others=called)
    of_function = other.race(len(called) + 1, len(called), "WAR").hazard()
    assert of_function.message.endswith("Put __syncthreads() between lines 2 and 5."), "of another function"
    mixed = Case("TOP:", *SHARED[:2], *LOOP[1:], others=called).race(1, len(called), "WAR").hazard()
    assert mixed.message.endswith("Put __syncthreads() between lines 2 and 5.")


def test_an_unrolled_loop_is_one() -> None:
    write, read = SHARED[:2]
    turns = "Put __syncthreads() after line 5, before line 2 runs again."
    assert Case(write, read, write, read).race(1, 2, "WAR").hazard().message.endswith(turns)
    once = Case(write, read, write).race(1, 2, "WAR").hazard().message
    assert once.endswith("between lines 2 and 5."), "of one there is only one"
    apart = Case(write, write, read, read).race(2, 1, "WAR").hazard().message
    assert apart.endswith("between lines 2 and 5."), "first all of one, then all of the other"
    own = Case(SHARED[2], SHARED[2]).race(0, 0, "WAW").hazard().message
    assert "Put __syncthreads() between two turns of the loop. If the race remains, let one thread" in own
    alone = Case(SHARED[2]).race(0, 0, "WAW").hazard().message
    assert alone.endswith("Let one thread write it, or give each an element of its own.")


ATOMICS = (
    *GLOBAL,
    "1| atom.global.cas.b32 %r9, [%rd1], %r2, %r3",
    "3| atom.global.add.u32 %r9, [%rd1], %r2",
    "4| ld.relaxed.gpu.global.u32 %r3, [%rd4]",
)
WRITE, READ, OTHER, SWAP, ADD, STRONG = range(6)


def sorted_race(*races: tuple[int, int, str, int], space: str = "global", **more: Any) -> list[Hazard]:
    made = Case(*ATOMICS)
    for first, second, kind, relation in races:
        made.race(first, second, kind, relation, space=space)
    return made.hazards(**more)


def test_a_plain_read_beside_atomics_says_why_it_may_be_right() -> None:
    (stale,) = sorted_race((SWAP, READ, "RAW", BLOCK))
    assert stale.severity == "info"
    assert "The compare-and-swap fails" in stale.message
    (stale,) = sorted_race((READ, SWAP, "WAR", WARP))
    assert (stale.severity, "The compare-and-swap fails" in stale.message) == ("info", True)
    (weak,) = sorted_race((ADD, READ, "RAW", GRID))
    assert (weak.severity, "the old or the new value" in weak.message) == ("warning", True)
    (weak,) = sorted_race((READ, ADD, "WAR", GRID))
    assert (weak.severity, "the old or the new value" in weak.message) == ("warning", True)
    (within,) = sorted_race((ADD, READ, "RAW", BLOCK))
    assert (within.severity, "Put __syncthreads()" in within.message) == ("error", True)
    (shared,) = sorted_race((ADD, READ, "RAW", GRID), space="shared")
    assert shared.severity == "error"
    (plain,) = sorted_race((WRITE, READ, "RAW", GRID))
    assert plain.severity == "error"
    (two,) = sorted_race((ADD, OTHER, "WAW", GRID))
    assert two.severity == "error"
    (strong,) = sorted_race((ADD, STRONG, "RAW", GRID))
    assert strong.severity == "error"


def test_lines_at_which_blocks_meet_are_forgiven_within_blocks_too() -> None:
    one, *more = sorted_race((ADD, READ, "RAW", BLOCK), (READ, ADD, "WAR", GRID))
    assert (one.severity, one.count, more) == ("warning", 2, [])
    assert one.message.endswith(" 2 pairs of lines meet on this array in this way.")
    made = Case(*ATOMICS).race(ADD, READ, "RAW", BLOCK, space="global")
    made.race(READ, ADD, "WAR", GRID, space="global", start=made.start + 512)
    assert [hazard.severity for hazard in made.hazards()] == ["error", "warning"], "another array"


def test_what_an_atomic_compares_again_does_no_harm() -> None:
    code = function(*ATOMICS)
    made = Case(*ATOMICS).race(ADD, READ, "RAW", BLOCK, space="global")
    compared = {id(made.function.instructions[READ])}
    hazard = made.hazard(checks=compared)
    assert (hazard.severity, "The atomic compares again" in hazard.message) == ("info", True)
    assert made.hazard(checks={id(code.instructions[READ])}).severity == "error"
    assert made.hazard(checks={id(made.function.instructions[ADD])}).severity == "error"


def test_plain_writes_of_an_array_that_is_swapped_are_a_warning() -> None:
    mixed, stale = sorted_race((WRITE, READ, "RAW", BLOCK), (SWAP, READ, "RAW", BLOCK))
    assert (mixed.severity, stale.severity) == ("warning", "info")
    assert "Compare-and-swaps change the same array" in mixed.message
    other, _ = sorted_race((WRITE, READ, "RAW", BLOCK), (ADD, READ, "RAW", GRID))
    assert other.severity == "error"
    made = Case(*ATOMICS).race(WRITE, READ, space="global").race(SWAP, READ, start=1 << 20, space="global")
    assert made.hazards()[0].severity == "error", "another array is swapped"
    made = Case(*ATOMICS).race(WRITE, READ).race(SWAP, READ)
    assert made.hazards()[0].severity == "error", "of shared memory all begins at one place"


def test_a_lost_update_is_one_hazard() -> None:
    code = ["2| ld.global.u32 %r1, [%rd1]", "4| add.s32 %r2, %r1, 1", "st.global.u32 [%rd1], %r2"]
    made = Case(*code, *ATOMICS[3:4]).race(0, 2, "WAR", WARP, space="global", count=2)
    made.race(2, 0, "RAW", GRID, space="global", count=3).race(2, 2, "WAW", BLOCK, space="global", count=4)
    hazard = made.hazard()
    assert hazard == Hazard(
        tool="race",
        kind="lost update",
        severity="error",
        space="global",
        kernel="k",
        first=Place(4, "fourth", (1, 0, 0), (3, 0, 0)),
        second=Place(2, "second", (0, 1, 0), (1, 1, 0)),
        address=made.start + 64,
        array="x[16]",
        count=9,
        message="thread (1, 1, 0) of block (0, 1, 0) and thread (3, 0, 0) of block (1, 0, 0) both read "
        "x[16], change it and write it back: one of the two changes can get lost. Use atomicAdd(&x[16], ...)."
        " If a lock guards it, put __threadfence() after the lock is taken and before it is opened.",
    )
    assert "__threadfence" not in Case(*code).race(0, 2, "WAR", space="global").hazard().message
    read = Case(*code, "6| ld.global.u32 %r3, [%rd4]").race(2, 3, "RAW", space="global").hazard()
    assert read.kind == "RAW", "a read that writes nothing back loses none"
    swapped = Case(*code, *ATOMICS[3:4]).race(0, 2, "WAR", space="global").race(3, 0, "RAW", space="global")
    assert [hazard.kind for hazard in swapped.hazards()] == ["lost update", "RAW"]


def test_everything_that_is_no_race() -> None:
    made = Case("2| ld.global.u32 %r1, [%rd1]", "3| shfl.sync.idx.b32 %r1, %r2, 3, 31, -1")
    made.findings.add(Occurrences(structures.UNWRITTEN, "global", 3, made.start, 9, Access(1, 0, 5)))
    made.findings.add_absent_lane(Access(2, 1, 6), 17)
    made.findings.add_absent_lane(Access(3, 1, 7), 18)
    unwritten, absent = made.hazards()
    assert unwritten == Hazard(
        tool="init",
        kind="uninitialised read",
        severity="warning",
        space="global",
        kernel="k",
        first=None,
        second=Place(2, "second", (1, 0, 0), (1, 1, 0)),
        address=made.start + 36,
        array="x[9]",
        count=3,
        message="thread (1, 1, 0) of block (1, 0, 0) reads x[9], which nothing has written. Fill it first, "
        "or make it with cp.zeros.",
    )
    assert absent == Hazard(
        tool="sync",
        kind="shuffle from an absent lane",
        severity="warning",
        space="",
        kernel="k",
        first=None,
        second=Place(3, "third", (0, 1, 0), (2, 1, 0)),
        address=None,
        array="",
        count=2,
        message=sentences.absent_message(Place(3, "", (0, 1, 0), (2, 1, 0)), 17),
    )
    made = Case("3| vote.sync.ballot.b32 %r1, %p1, -1")
    made.findings.add_absent_lane(Access(2, 0, 6), 17)
    hazard = made.hazard()
    assert (hazard.kind, hazard.tool, hazard.severity) == ("mask names an absent lane", "sync", "warning")
    assert hazard.message == sentences.unmet_message(Place(3, "", (0, 1, 0), (2, 1, 0)), 17)


def test_an_access_that_left_its_array() -> None:
    made = Case()
    other = made.memory.malloc(4096)
    made.memory.track(other, 256, "float32 array of shape (64,) (parameter y)")
    kernel = function("2| st.global.u32 [%rd1], %r1", "3| ld.global.u32 %r1, [%rd1]")
    low = other
    high = other + 256
    made.findings.sites = [site(n, i, (low, high)) for n, i in enumerate(kernel.instructions[:2])]
    made.findings.add(Occurrences(structures.OUTSIDE_ARRAY, "global", 1, made.start, 3, Access(0, 0, 1)))
    before = made.hazard()
    assert (before.tool, before.kind, before.severity) == ("memory", "outside its array", "error")
    assert before.message == (
        "thread (1, 0, 0) of block (0, 0, 0) writes x[3] through a pointer to the float32 array of shape "
        f"(64,) (parameter y): {low - made.start - 12:,} bytes before its start. Check the index against its "
        "size; on a GPU this goes unnoticed."
    )
    made.findings.found.clear()
    made.findings.add(Occurrences(structures.OUTSIDE_ARRAY, "global", 1, low, 64, Access(0, 1, 1)))
    assert "reads element 64 of the" in made.hazard().message
    assert ": 0 bytes past its end." in made.hazard().message
    made.memory.untrack(other)
    made.memory.untrack(made.start)
    assert "through a pointer to the array: " in made.hazard().message


def test_a_copy_that_nobody_awaited() -> None:
    code = [
        "2| st.async.shared.u32 [%r1], %r5",
        "4| ld.shared.u32 %r2, [%r3]",
        "st.shared.u32 [%r3], %r2",
        "6| st.async.shared.u32 [%r1], %r5",
    ]
    made = Case(*code).race(0, 1, what=structures.PENDING_COPY)
    hazard = made.hazard()
    assert (hazard.tool, hazard.kind, hazard.severity, hazard.space) == (
        "race",
        "copy not awaited",
        "error",
        "shared",
    )
    assert hazard.first == Place(2, "second", (1, 0, 0), (3, 0, 0))
    call = "__pipeline_wait_prior, consumer_wait or cuda::barrier's wait in CUDA C++)"
    assert hazard.message == (
        "thread (1, 1, 0) of block (0, 1, 0) reads s[0][0], where what thread (3, 0, 0) copies there "
        f"asynchronously (line 2) has not arrived. Wait for it between lines 2 and 4 (cp.async.wait_group, "
        f"which is {call}, then __syncthreads()."
    )
    own = Case(*code).race(0, 2, what=structures.PENDING_COPY, threads=(5, 5)).hazard().message
    assert "writes s[0][0]" in own
    assert own.endswith(f"{call}.")
    again = Case(*code).race(0, 3, what=structures.PENDING_COPY).hazard().message
    assert "copies to s[0][0]" in again
    same = Case(*code).race(0, 0, what=structures.PENDING_COPY).hazard().message
    assert f"Wait for it before (cp.async.wait_group, which is {call}, then" in same
    after = " The write is an asynchronous copy: its thread waits for it first, then for the others."
    assert Case(*code).race(0, 1).hazard().message.endswith(f"between lines 2 and 4.{after}")
    assert after not in Case(*code).race(2, 3, "WAW").hazard().message


def test_accesses_to_the_device_heap_outside_its_blocks() -> None:
    made = Case("2| st.global.u32 [%rd1], %r1", "3| ld.global.u32 %r1, [%rd1]", mib=16)
    heap = made.memory.open_heap()
    with heap.checked():
        first = heap.take(64)
        second = heap.take(1500)
        heap.give(first)
        made.findings.add_outside_block(Access(0, 0, 1), second + 1500)
        made.findings.add_outside_block(Access(0, 0, 1), second + 1600)
        made.findings.add_outside_block(Access(0, 1, 1), first + 63)
        made.findings.add_outside_block(Access(0, 1, 1), first + 64)
        past, freed, other = made.hazards()
    who = "thread (1, 0, 0) of block (0, 0, 0)"
    assert (past.kind, past.tool, past.severity, past.count, past.address) == (
        "out of bounds",
        "memory",
        "error",
        2,
        second + 1500,
    )
    assert past.array == "byte 1,500 of a block of 1,500 bytes on the device heap"
    assert past.message == (
        f"{who} writes 4 bytes at {past.array}: check the index against what malloc() gave."
    )
    assert freed.kind == "use after free"
    assert freed.message == (
        f"{who} reads byte 63 of a block of 64 bytes on the device heap that has been freed: use it before "
        "free(), or take another."
    )
    assert (other.kind, other.array) == ("out of bounds", "device heap")
    assert other.message == (f"{who} reads the device heap where malloc() gave no block: check the pointer.")


def test_a_barrier_that_not_all_come_to() -> None:
    code = ["2| bar.sync 0", "3| bar.sync 0", "3| barrier.cta.red.popc.aligned.u32 %r1, 0, %p1"]

    def of(at: int, other: int | None, *before: str) -> Hazard:
        made = Case(*before, *code, *(LOOP[1:] if before else ()))
        one = made.function.instructions
        here = Arrival(1, one[at], 0b1100)
        there = None if other is None else Arrival(0, one[other], 0b1000)
        made.findings.add_divergent_barrier(6, here, there)
        made.findings.add_divergent_barrier(7, here, there)
        return made.hazard()

    alone = of(0, None)
    assert alone == Hazard(
        tool="sync",
        kind="divergent barrier",
        severity="error",
        space="",
        kernel="k",
        first=None,
        second=Place(2, "second", (0, 1, 1), (2, 0, 4)),
        address=None,
        array="",
        count=2,
        message=sentences.apart_message(0b1100, None, Place(2, "", (0, 1, 1), (2, 0, 4)), False),
    )
    both = of(0, 1)
    assert (both.severity, both.first) == ("error", Place(3, "third", (0, 1, 1), (3, 0, 0)))
    assert "waits at the one of line 3" in both.message
    for hazard in (of(2, None), of(0, None, "TOP:")):
        assert (hazard.severity, "compute-sanitizer does not see it" in hazard.message) == ("warning", True)
    assert of(0, 1, "TOP:").severity == "error"


def test_of_very_many_findings_some_are_only_counted() -> None:
    made = Case(*[f"{line}| st.global.u32 [%rd1], %r1" for line in range(1, 67)])
    for at in range(66):
        made.race(at, at, "WAW", space="global")
        assert (len(made.findings.found), made.findings.more) == (min(at + 1, 64), max(0, at - 63))
    made.race(0, 0, "WAW", space="global", count=5, agree=True)
    made.race(65, 65, "WAW", space="global")
    assert (made.findings.more, len(made.hazards())) == (3, 64)
    assert made.hazards()[0].count == 6
    assert made.hazards()[0].severity == "error"
