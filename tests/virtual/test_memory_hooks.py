"""Memory hooks: their calls and arguments, and the two ready-made hooks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import virtualgpu.cp as cp
from virtualgpu.cp.cuda import MemoryHook, memory_hook
from virtualgpu.model.machine import Machine

pytestmark = pytest.mark.usefixtures("machine")
CALLBACKS = [f"{what}_{when}process" for what in ("alloc", "malloc", "free") for when in ("pre", "post")]


class Recorder(MemoryHook):
    """A hook that logs every call with the pool's used and total bytes."""

    name = "recorder"

    def __init__(self) -> None:
        self.log: list[Any] = []
        for callback in CALLBACKS:
            setattr(self, callback, self.writer(callback))

    def writer(self, callback: str) -> Any:
        pool = cp.get_default_memory_pool()

        def write(**arguments: Any) -> None:
            self.log.append((callback, arguments, pool.used_bytes(), pool.total_bytes()))

        return write

    def events(self) -> list[tuple[str, dict[str, Any]]]:
        return [(callback, arguments) for callback, arguments, _, _ in self.log]


def test_a_hook_stays_active_after_a_change_of_machine(machine: Machine, two_gpus: Machine) -> None:
    from virtualgpu.model import machine as slot

    with Recorder() as hook:
        slot.use(machine)
        cp.empty(1)
    assert hook.log
    slot.use(two_gpus)
    assert memory_hook.get_memory_hooks() == {}


def test_hooks_receive_the_device_of_an_allocation(two_gpus: Machine) -> None:
    with Recorder() as hook, cp.cuda.Device(1):
        cp.empty(1)
    assert {arguments["device_id"] for _, arguments in hook.events()} == {1}


def test_a_hook_may_use_the_pool() -> None:
    """This includes a hook that runs while the garbage collector frees an array inside a pool call."""
    pool = cp.get_default_memory_pool()

    class Curious(MemoryHook):
        def __init__(self) -> None:
            self.kept: list[Any] = []
            self.seen: list[tuple[int, int, int]] = []

        def free_preprocess(self, **_: Any) -> None:
            self.kept.append(cp.empty(50, dtype=np.int8))
            self.seen.append((pool.used_bytes(), pool.n_free_blocks(), len(pool.block_map().segments)))

    x = cp.empty(100, dtype=np.int8)
    single = pool.device_pool()
    with Curious() as hook:
        with single._chunks.lock_pool():
            del x
            assert (single.used_bytes(), single.n_free_blocks()) == (512, 0)  # the first is on its way
        assert (single.used_bytes(), single.n_free_blocks()) == (512, 1)
    assert isinstance(hook, Curious)
    assert hook.seen == [(1024, 0, 2)]


def test_block_map_labels_the_blocks_in_use() -> None:
    pool = cp.get_default_memory_pool()
    x = cp.empty(300, dtype=np.float32)
    y = cp.empty(2048, dtype=np.int8)
    del y
    z = cp.empty(100, dtype=np.int8)
    block_map = pool.block_map()
    assert (block_map.used_bytes, block_map.free_bytes, block_map.total_bytes) == (2048, 1536, 3584)
    assert block_map.largest_free_bytes == 1536
    assert block_map.provenance.source == "modelled"
    assert [(b.size_bytes, b.requested_bytes, b.label, b.is_free) for b in block_map.blocks] == [
        (1536, 1200, "float32 array of shape (300,)", False),
        (512, 100, "int8 array of shape (100,)", False),
        (1536, 0, "", True),
    ]
    assert [block.address for block in block_map.blocks] == [x.data.ptr, z.data.ptr, z.data.ptr + 512]
    assert [segment.size_bytes for segment in block_map.segments] == [1536, 2048]
