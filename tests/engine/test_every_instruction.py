"""No instruction becomes a call of a function that this package does not bring, on any level of processor."""

from __future__ import annotations

import functools
import importlib
import re
from itertools import product
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt
import pytest

from tests.engine.every_instruction import FAMILIES, LANE_BYTES, OWN_BYTES, kernel, results
from tests.engine.ptx_runner import launch
from virtualgpu.compile.ptx import parser
from virtualgpu.engine.lower import codegen
from virtualgpu.engine.lower.ops import arith, bitops, warp_ops
from virtualgpu.engine.lower.ops.floating import convert
from virtualgpu.engine.machine import jit, object_code, processor, split, stand_ins
from virtualgpu.engine.machine.processor import Processor

# What every C library has, as the C standard wants it of one that compilers may count on.
EVERYWHERE = {"memcpy", "memmove", "memset"}
COMPILED_PYTHON = (
    ("virtualgpu.sanitizer.touched", "compile_mark_observer"),
    ("virtualgpu.sanitizer.events", "compile_observer"),
    ("virtualgpu.engine.caches.notes", "compile_observer"),
    ("virtualgpu.engine.caches.replay", "compile_replay"),
)
# Has two results; it is made of nothing but what the others are.
ELSEWHERE = {"elect"}


# Ends and neighbours of ends, of each width: zeros, subnormal ones, infinities, NaN.
HALVES = [0, 1, 0x3FF, 0x400, 0x3C00, 0x3C01, 0x7BFF, 0x7C00, 0x7E00, 0x7FFF, 0x8000, 0x8001, 0xBC00, 0xFC00]
FLOATS = [0, 1, 0x7FFFFF, 0x800000, 0x33000000, 0x387FC000, 0x3F000000, 0x3F800000, 0x7F7FFFFF, 0x7F800000]
NEGATIVE = [0x7FC00000, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFF800000, 0xFFFFFFFF]
OPERANDS = ("random", "float32", "float64", "16", "32")
COMPARED = [family for family in FAMILIES if family != "textures"]
ENDS = {16: [*HALVES, 0xFFFF], 32: [*FLOATS, *NEGATIVE]}


def operands(kind: str) -> npt.NDArray[np.uint64]:
    """What the lanes of a warp read: random bits, usual numbers or the ends of a width."""
    rng = np.random.default_rng(len(kind))
    words = rng.integers(0, 1 << 63, 32 * OWN_BYTES // 8, np.uint64) * np.uint64(2)
    if kind in ("float32", "float64"):
        numbers = words.view(kind)
        numbers[:] = rng.standard_normal(numbers.size) * 10.0 ** rng.integers(-6, 6, numbers.size)
    elif kind != "random":
        narrow = words.view(f"uint{kind}")
        narrow[:] = rng.choice(np.array(ENDS[int(kind)], narrow.dtype), narrow.size)
    return words


def without_payloads(values: npt.NDArray[np.uint64], opcode: str, kind: str) -> npt.NDArray[Any]:
    """Results of one line with every NaN alike: which of two NaN an operation passes on is left open."""
    width = {"f": "4", "g": "8", "r": "2", "h": "2"}.get(kind, "")
    if not width or (kind in "rh" and "f16" not in opcode):
        return values
    numbers = values.view(f"f{width}").copy()
    numbers[np.isnan(numbers)] = np.nan
    return numbers.view(np.uint64)


@functools.cache
def text_of(family: str, counted: bool, constant: bool = False) -> str:
    ptx = kernel(FAMILIES[family])
    module = parser.parse(with_constants(ptx) if constant else ptx)
    return codegen.generate_kernel(
        module, "k", with_counters=counted, with_trace=False, with_observer=counted
    ).text


# A register that holds one number alone becomes that number in the text, which then looks otherwise.
NUMBERS = {"f": "0f3F8CCCCD", "g": "0d3FF199999999999A"}


def with_constants(ptx: str) -> str:
    """A kernel of `kernel` whose operands are not loaded, but numbers that stand in it."""
    loaded = re.compile(r"ld\.global\.(\w+) %([rhdfg])(\d), \[%from\+\d+\];")
    return loaded.sub(lambda m: f"mov.{m[1]} %{m[2]}{m[3]}, {NUMBERS.get(m[2], 15361 + int(m[3]))};", ptx)


def called(text: str, level: str) -> set[str]:
    """Functions that code for a level calls from outside; made here, wherever it could run."""
    target_processor = processor.make_level_processor(level)
    return outside(stand_ins.replace_missing_operations(text, target_processor), target_processor)


def outside(adapt: str, target_processor: Processor) -> set[str]:
    module = llvm.parse_assembly(adapt)
    module.verify()
    return object_code.read_symbols(jit.make_target_machine(target_processor, 1).emit_object(module))[0]


# Higher levels lack nothing that these have.
@pytest.mark.parametrize(("family", "level"), [*product(FAMILIES, processor.list_feature_levels()[:2])])
def test_instructions_call_no_external_functions(family: str, level: str) -> None:
    assert called(text_of(family, False), level) <= EVERYWHERE


@pytest.mark.parametrize("level", processor.list_feature_levels()[:1])
@pytest.mark.parametrize("family", ["memory", "textures", "warps"])
def test_counted_and_observed_code_calls_no_external_functions(family: str, level: str) -> None:
    assert called(text_of(family, True), level) <= EVERYWHERE


@pytest.mark.parametrize("level", processor.list_feature_levels()[:1])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("family", ["floats", "halves", "conversions", "comparisons", "integers"])
def test_shared_functions_of_long_kernels_call_no_external_ones(
    family: str, constant: bool, level: str
) -> None:
    """Each kind of operation is a separate function there, which has no constant operands."""
    target_processor = processor.make_level_processor(level)
    halves = split.split_kernel(
        stand_ins.replace_missing_operations(text_of(family, False, constant), target_processor)
    )
    assert halves is not None
    assert outside(halves.support_text, target_processor) <= EVERYWHERE


@pytest.mark.parametrize("level", processor.list_feature_levels()[:1])
@pytest.mark.parametrize(("module", "name"), COMPILED_PYTHON)
def test_observers_call_no_external_functions(
    module: str, name: str, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[str] = []

    class Enough(Exception):
        pass

    def library(text: str, _entry: str) -> None:
        texts.append(text)
        raise Enough

    monkeypatch.setattr(jit, "LibraryCode", library)
    with pytest.raises(Enough):
        getattr(importlib.import_module(module), name).__wrapped__()
    assert called(texts[0], level) <= EVERYWHERE


@pytest.mark.parametrize(("family", "which"), [*product(COMPARED, OPERANDS)])
def test_results_are_bit_identical_on_every_processor(
    family: str, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = FAMILIES[family]
    places = results(lines)
    inputs = [operands(which), np.zeros(len(places) * 32 * LANE_BYTES // 8, np.uint64)]
    outputs = {}
    # The highest level is much like the native processor of a computer that has it.
    for name in (
        "native",
        *(
            level
            for level in processor.list_feature_levels()[:2]
            if not processor.find_missing_features(level)
        ),
    ):
        monkeypatch.setenv(processor.CPU_VARIABLE, name)
        outputs[name] = launch(kernel(lines), "k", inputs)
    memory, values = outputs.pop("native")
    for name, (own_memory, own_values) in outputs.items():
        memories = [without_payloads(words, "f16", "r") for words in (own_memory, memory)]
        assert np.array_equal(*memories), name
        for (line, kind), level_values, other in zip(
            places, own_values.reshape(-1, 32), values.reshape(-1, 32), strict=True
        ):
            opcode = line.split(" ")[0]
            same = without_payloads(level_values, opcode, kind) == without_payloads(other, opcode, kind)
            assert same.all(), f"{name}: {line} in lane {np.flatnonzero(~same)[0]}"


def test_every_opcode_root_is_in_the_test_list() -> None:
    listed = {line.split(" ")[0].split(".")[0] for lines in FAMILIES.values() for line in lines}
    known = {root for module in (arith, bitops, convert, warp_ops) for root in module.HANDLERS}
    assert known - listed <= ELSEWHERE


@pytest.mark.skipif(processor.find_architecture() != "x86", reason="x86's lowest level lacks both")
def test_external_functions_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_ins, "replace_missing_operations", lambda text, _: text)
    assert "fmaf" in called(text_of("floats", False), "x86-64-v2")
    assert "__truncsfhf2" in called(text_of("halves", False), "x86-64-v2")
