"""The memory pool against CuPy's own on an H200: 150 programs, equal after every step."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import virtualgpu.cp as cp
from virtualgpu.cuda_errors import OutOfMemoryError

pytestmark = pytest.mark.usefixtures("machine", "few_objects")
RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parent / "data" / "cupy_pool_h200.json").read_text(encoding="utf-8")
)


@pytest.fixture
def few_objects() -> Iterator[None]:
    """A pool at its limit collects garbage, which takes long in a large test process."""
    gc.freeze()
    yield
    gc.unfreeze()


def replay(program: list[list[Any]]) -> list[list[Any]]:
    """Run a program of `record_pool.py` and return its steps with what came of them here."""
    pool = cp.cuda.MemoryPool()
    streams = [cp.cuda.Stream.null, cp.cuda.Stream(non_blocking=True), cp.cuda.Stream()]
    held: dict[int, Any] = {}
    steps = []
    for kind, *step in program:
        done = [kind, *step[:-4]]
        if kind == "malloc":
            stream, size, name, _ = step[:4]
            try:
                with streams[stream]:
                    held[name] = pool.malloc(size)
            except OutOfMemoryError:
                done[3:] = [-1, -1]
            else:
                address = held[name].ptr
                done[4] = address - max(s.address for s in pool.block_map().segments if s.address <= address)
        elif kind == "free":
            del held[step[0]]
        elif kind == "free_all_blocks":
            pool.free_all_blocks(None if step[0] < 0 else streams[step[0]])
        else:
            pool.set_limit(size=step[0])
        state = (pool.used_bytes(), pool.total_bytes(), pool.free_bytes(), pool.n_free_blocks())
        steps.append([*done, *state])
    return steps


def test_equal_after_every_step() -> None:
    programs = RECORDED["programs"]
    assert len(programs) == 150
    assert [i for i, program in enumerate(programs) if replay(program) != program] == []


def test_the_programs_do_everything() -> None:
    steps = [step for program in RECORDED["programs"] for step in program]
    kinds = {step[0] for step in steps}
    assert kinds == {"malloc", "free", "free_all_blocks", "limit"}
    placed = [step for step in steps if step[0] == "malloc"]
    assert sum(step[3] < 0 for step in placed) > 50  # refused by a limit
    assert sum(step[4] > 0 for step in placed) > 500  # cut from a larger block
    assert max(step[-1] for step in steps) > 5  # fragmented
