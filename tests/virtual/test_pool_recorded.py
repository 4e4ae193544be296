"""CuPy's pools against an H200: random programs step by step, and results of unusual calls.

`tools.recordings.pools` recorded them with CuPy 14.2; the same programs and calls run here.
"""

from __future__ import annotations

import ast
import gc
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import virtualgpu.cp as cp
from tests.virtual.conftest import fresh
from tools.recordings import pool_cases, pool_programs
from tools.recordings.pool_programs import FAILED, NOTHING, Rows
from tools.recordings.pools import TIES_FROM
from virtualgpu.model.devices import device_info
from virtualgpu.model.machine import Machine

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parent / "data" / "pools_h200.json").read_text(encoding="utf-8")
)
CAPACITY: int = RECORDED["about"]["capacity_bytes"]
# Of the driver's pool it is not known which pages it maps together: programs in which its size differs.
UNLIKE_THE_DRIVERS_POOL = 8

# A base class of ours, and Python's words for missing arguments.
HERE = re.compile(
    r"'_PicklableError', |['\"]TypeError: (?:OutOfMemoryError\.)?__init__\(\)[^\[]*"
    r"|TypeError: \w*\.?__init__\(\) .*"
)
# What is ours in messages, behind the first words, which are CuPy's.
OURS = re.compile(
    r"(?<=out of memory): [^\"]*|(?<=invalid argument): [^\"]*|(?<=invalid device ordinal): [^\"]*"
    r"|(?<=size_t): a size of -?\d+ bytes|(?<=unsigned long): a size of [\d,]+ bytes"
    r"|(?<=C ssize_t): an address of 0x|(?<=integer is required)(?: for [a-z ]+)?, not \w+"
    r"|(?<=MemoryPointer): an allocator must return the result of [\w. ]+\."
    r"|(?<=AssertionError: )an allocation of 0 bytes [\w ]+"
)
CLASS = re.compile(r"(?:cupy|virtualgpu\.cp)\.cuda\.(?:\w+\.)+(?=[A-Z])")
# Where a case's part differs, and why.
DIFFERENT = {
    "pointers": {
        "no memory": "a pointer into None reads arbitrary memory in CuPy",
        "set": "attributes of compiled classes are read-only",
        "pickle": "CuPy pickles addresses",
        "pool": "CuPy pickles addresses",
    },
    "hooks_and_names": {"type": "any mapping in order", "unexpected": "Python's words for a Python class"},
    "c_functions": {"attributes": "private; CUB takes a byte to work with"},
    "python_functions": {"pool none": "CuPy makes a block of arbitrary memory"},
    "pinned_pointers": {
        "buffer": "ctypes writes the byte order",
        "sum": "a pointer beyond the memory",
        "attributes": "private",
    },
    "pinned_raw_sizes": {"2**70": "CuPy's own half-made objects complain when they end"},
}


@pytest.fixture(autouse=True)
def h200() -> Iterator[Machine]:
    """A virtual H200 with the memory of the recorded one."""
    assert device_info("H200").memory_bytes == CAPACITY
    yield from fresh("H200")


def recorded(kind: str) -> list[Rows]:
    assert not RECORDED[kind]["failed programs"]
    return pool_programs.unpack(RECORDED[kind]["tables"], RECORDED[kind]["count"])


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    """The programs themselves collect garbage."""
    gc.disable()
    yield
    gc.enable()


def differing_programs(kind: str, results: Iterable[Rows]) -> list[int]:
    pairs = enumerate(zip(results, recorded(kind), strict=True))
    return [i for i, (result, expected) in pairs if not same(result, expected)]


def same(result: Rows, expected: Rows) -> bool:
    return result.shape == expected.shape and bool((result == expected).all())


@pytest.mark.usefixtures("no_garbage_collection")
def test_memory_pool_states_equal_the_h200_recording() -> None:
    """Compares used and total bytes, free blocks, limit, device calls, and each block's position."""
    count = RECORDED["pool"]["count"]
    assert count >= 1000
    assert differing_programs("pool", (pool_programs.run(cp, seed, CAPACITY) for seed in range(count))) == []


@pytest.mark.usefixtures("no_garbage_collection")
def test_most_programs_with_ties_equal_the_h200_recording() -> None:
    """CuPy's choice among equal blocks depends on host addresses. It rarely changes the totals."""
    results = [
        pool_programs.run(cp, TIES_FROM + k, CAPACITY, ties=True) for k in range(RECORDED["ties"]["count"])
    ]
    pairs = list(zip(results, recorded("ties"), strict=True))
    assert sum(same(result[:, :3], expected[:, :3]) for result, expected in pairs) >= 0.98 * len(pairs)


@pytest.mark.parametrize("kind", ["pinned", "nested"])
def test_pinned_and_nested_pools_equal_the_h200_recording(kind: str) -> None:
    run = getattr(pool_programs, kind)
    assert differing_programs(kind, (run(cp, seed) for seed in range(RECORDED[kind]["count"]))) == []


def test_the_drivers_pool_equals_most_of_the_h200_recording() -> None:
    count = RECORDED["ordered"]["count"]
    results = [pool_programs.ordered(cp, seed) for seed in range(count)]
    assert all(
        (result[:, 0] == expected[:, 0]).all()
        for result, expected in zip(results, recorded("ordered"), strict=True)
    )
    assert len(differing_programs("ordered", results)) <= UNLIKE_THE_DRIVERS_POOL


def test_the_programs_contain_every_kind_of_step() -> None:
    steps = [step for seed in range(300) for step in pool_programs.program(seed, CAPACITY)[1]]
    assert {step[0] for step in steps} == {"malloc", "free", "lose", "collect", "empty", "limit", "fraction"}
    rows = np.concatenate(recorded("pool"))
    used, total, free, limit, requested, segment, offset = rows.T
    assert (segment == FAILED).sum() > 2000  # refused by a limit or the device
    assert (segment == NOTHING).sum() > 300
    assert (offset > 0).sum() > 3000  # cut from a larger block
    assert ((segment >= 0) & (requested - 1 > segment)).sum() > 3000  # from a segment that was there
    assert free.max() > 8
    assert total.max() > (2 << 30) // 512
    assert (limit > 0).sum() > 5000
    assert (used > total).sum() == 0


def parts(told: str) -> dict[str, str]:
    """Split the text of a case into its named parts."""
    pieces = re.split(r" \| (?=[\w*{'\"-][^|:]*?: )", told)
    named = [part.partition(": ") for part in pieces]
    return {name.lstrip("(\"'"): text for name, _, text in named} if len(pieces) > 1 else {"": told}


@pytest.mark.parametrize("name", [name for name in pool_cases.CASES if name != "public_names"])
def test_unusual_calls_have_the_recorded_results(name: str) -> None:
    result, expected = (
        {key: OURS.sub("", HERE.sub("", CLASS.sub("", part))) for key, part in parts(text).items()}
        for text in (pool_cases.run_case(cp, name), RECORDED["cases"][name])
    )
    different = DIFFERENT.get(name, {})
    assert set(different) <= set(expected)
    assert {key: text for key, text in result.items() if key not in different} == {
        key: text for key, text in expected.items() if key not in different
    }


def test_public_names() -> None:
    """All of CuPy's names exist, on the class or on an instance."""
    cuda = cp.cuda
    instances = [
        cuda.alloc(1).mem,
        cuda.alloc(1),
        cuda.Memory(1),
        cuda.malloc_async(1).mem,
        cuda.MemoryAsyncPool(),
        cuda.malloc_managed(1).mem,
        cuda.UnownedMemory(cuda.alloc(1).ptr, 1, None),
        cuda.alloc_pinned_memory(1),
        cuda.alloc_pinned_memory(1).mem,
        cuda.PinnedMemory(1),
        cuda.CFunctionAllocator(0, 0, 0, None).malloc(0).mem,
        cuda.PythonFunctionAllocator(lambda size, device: 4096, lambda address, device: None).malloc(1).mem,
        cuda.memory_hooks.DebugPrintHook(),
    ]
    attributes = {type(instance).__name__: set(dir(instance)) for instance in instances}
    for path, names in parts(RECORDED["cases"]["public_names"]).items():
        value: Any = cuda
        for part in path.split("."):
            value = getattr(value, part)
        missing = set(ast.literal_eval(names)) - set(dir(value)) - attributes.get(value.__name__, set())
        missing -= {"add_note", "args", "with_traceback"}
        assert not missing or path.endswith("BaseMemory"), path
