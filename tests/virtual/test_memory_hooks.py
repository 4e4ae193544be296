"""Memory hooks: what CuPy calls when, with which arguments; and its two ready-made hooks."""

from __future__ import annotations

import io
import json
import threading
from typing import Any

import numpy as np
import pytest

import virtualgpu.cp as cp
from virtualgpu.cp.cuda import MemoryHook, memory_hook, memory_hooks
from virtualgpu.cuda_errors import OutOfMemoryError
from virtualgpu.model.machine import Machine

pytestmark = pytest.mark.usefixtures("machine")
CALLBACKS = [f"{what}_{when}process" for what in ("alloc", "malloc", "free") for when in ("pre", "post")]


class Recorder(MemoryHook):
    """Writes down every call with the pool's numbers at that moment."""

    def __init__(self, name: str = "recorder", log: list[Any] | None = None) -> None:
        self.name = name
        self.log: list[Any] = [] if log is None else log
        for callback in CALLBACKS:
            setattr(self, callback, self.writer(callback))

    def writer(self, callback: str) -> Any:
        pool = cp.get_default_memory_pool()

        def write(**told: Any) -> None:
            self.log.append((callback, told, pool.used_bytes(), pool.total_bytes()))

        return write

    def events(self) -> list[tuple[str, dict[str, Any]]]:
        return [(callback, told) for callback, told, _, _ in self.log]


def test_a_new_block_an_old_block_and_a_free() -> None:
    with Recorder() as hook:
        x = cp.empty(10, dtype=np.int8)
        address = x.data.ptr
        memory = id(x.data.mem)
        del x
        y = cp.empty(600, dtype=np.int8)
    block = {"device_id": 0, "mem_size": 512, "mem_ptr": address, "pmem_id": memory}
    asked = {"device_id": 0, "size": 10, "mem_size": 512}
    assert hook.log[:6] == [
        ("malloc_preprocess", asked, 0, 0),
        ("alloc_preprocess", {"device_id": 0, "mem_size": 512}, 0, 512),
        ("alloc_postprocess", {"device_id": 0, "mem_size": 512, "mem_ptr": address}, 0, 512),
        ("malloc_postprocess", {**asked, "mem_ptr": address, "pmem_id": memory}, 512, 512),
        ("free_preprocess", block, 512, 512),
        ("free_postprocess", block, 0, 512),
    ]
    assert [callback for callback, _ in hook.events()[6:]] == CALLBACKS[2:3] + CALLBACKS[:2] + CALLBACKS[3:4]
    length = len(hook.log)
    del y
    assert len(hook.log) == length  # freed after the with block


def test_a_block_of_the_pool_needs_no_alloc() -> None:
    first = cp.empty(100, dtype=np.int8)
    del first
    with Recorder() as hook:
        cp.empty(400, dtype=np.int8)
    assert [callback for callback, _ in hook.events()] == CALLBACKS[2:]


def test_a_failed_allocation_has_address_zero() -> None:
    pool = cp.get_default_memory_pool()
    pool.set_limit(size=1024)
    with Recorder() as hook, pytest.raises(OutOfMemoryError):
        cp.empty(4096, dtype=np.int8)
    asked = {"device_id": 0, "size": 4096, "mem_size": 4096}
    assert hook.events() == [  # the limit stands before the device
        ("malloc_preprocess", asked),
        ("malloc_postprocess", {**asked, "mem_ptr": 0, "pmem_id": 0}),
    ]
    pool.set_limit()
    with Recorder() as hook, pytest.raises(OutOfMemoryError):
        pool.malloc(1 << 45)
    tries = [told["mem_ptr"] for callback, told in hook.events() if callback == "alloc_postprocess"]
    assert tries == [0, 0, 0]  # as it is, without free blocks, after collecting garbage
    assert hook.log[-1][2:] == (0, 0)


def test_an_empty_array_asks_for_nothing() -> None:
    with Recorder() as hook:
        pointer = cp.get_default_memory_pool().malloc(0)
    assert [callback for callback, _ in hook.events()] == ["malloc_preprocess", "malloc_postprocess"]
    asked = {"device_id": 0, "size": 0, "mem_size": 0}
    assert hook.events()[1][1] == {**asked, "mem_ptr": 0, "pmem_id": id(pointer.mem)}


def test_hooks_are_called_in_the_order_of_entering_and_have_names_of_their_own() -> None:
    log: list[Any] = []

    class Named(MemoryHook):
        def __init__(self, name: str) -> None:
            self.name = name

        def malloc_preprocess(self, **_: Any) -> None:
            log.append(self.name)

    with Named("b"), Named("a"):
        cp.empty(1)
        with pytest.raises(KeyError, match="memory hook a already exists"), Named("a"):
            pass
        cp.empty(1)
    cp.empty(1)
    assert log == ["b", "a", "b", "a"]
    assert memory_hook.get_memory_hooks() == {}


def test_hooks_belong_to_the_thread() -> None:
    others: list[dict[str, MemoryHook]] = []

    def elsewhere() -> None:
        others.append(dict(memory_hook.get_memory_hooks()))
        cp.empty(1)

    with Recorder() as hook:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert others == [{}]
    assert hook.log == []


def test_a_hook_survives_another_machine(machine: Machine, two_gpus: Machine) -> None:
    from virtualgpu.model import machine as slot

    with Recorder() as hook:
        slot.use(machine)
        cp.empty(1)
    assert hook.log
    slot.use(two_gpus)
    assert memory_hook.get_memory_hooks() == {}


def test_allocations_of_a_second_device_say_so(two_gpus: Machine) -> None:
    with Recorder() as hook, cp.cuda.Device(1):
        cp.empty(1)
    assert {told["device_id"] for _, told in hook.events()} == {1}


def test_a_hook_that_raises_ends_the_allocation_and_loses_nothing() -> None:
    class Bad(MemoryHook):
        def malloc_postprocess(self, **_: Any) -> None:
            raise RuntimeError("bad hook")

    with Bad(), pytest.raises(RuntimeError, match="bad hook"):
        cp.empty(3)
    pool = cp.get_default_memory_pool()
    assert (pool.used_bytes(), pool.n_free_blocks()) == (0, 1)


def test_a_hook_may_use_the_pool() -> None:
    """Even while the garbage collector frees an array within a call of the pool."""
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
        with single._chunks.alone():
            del x
            assert (single.used_bytes(), single.n_free_blocks()) == (512, 0)  # the first is on its way
        assert (single.used_bytes(), single.n_free_blocks()) == (512, 1)
    assert isinstance(hook, Curious)
    assert hook.seen == [(1024, 0, 2)]


def test_debug_print_writes_one_json_object_a_line() -> None:
    file = io.StringIO()
    with memory_hooks.DebugPrintHook(file=file):
        x = cp.empty(3, dtype=np.int64)
        address = x.data.ptr
        memory = hex(id(x.data.mem))
        del x
    assert file.getvalue().splitlines() == [
        f'{{"hook":"alloc","device_id":0,"mem_size":512,"mem_ptr":{address}}}',
        f'{{"hook":"malloc","device_id":0,"size":24,"mem_size":512,"mem_ptr":{address},"pmem_id":"{memory}"}}',
        f'{{"hook":"free","device_id":0,"mem_size":512,"mem_ptr":{address},"pmem_id":"{memory}"}}',
    ]
    assert [json.loads(line)["hook"] for line in file.getvalue().splitlines()] == ["alloc", "malloc", "free"]


def test_debug_print_writes_where_print_does(capsys: pytest.CaptureFixture[str]) -> None:
    with memory_hooks.DebugPrintHook():
        cp.empty(1)
    assert capsys.readouterr().out.count("\n") == 3


def test_line_profile_adds_up_by_line() -> None:
    def allocate() -> list[Any]:
        return [cp.empty(100, dtype=np.int8), cp.empty(1000, dtype=np.int8)]

    with memory_hooks.LineProfileHook() as hook:
        kept = allocate()
        kept += allocate()
        del kept
        cp.empty(512, dtype=np.int8)
    file = io.StringIO()
    assert isinstance(hook, memory_hooks.LineProfileHook)
    hook.print_report(file)
    lines = file.getvalue().splitlines()
    assert lines[0] == "_root (3.50KB, 3.00KB)"
    assert all(line.startswith("  " * 1) for line in lines[1:])
    mine = [line.strip().rpartition(":")[2] for line in lines if __file__ in line]
    test = "test_line_profile_adds_up_by_line"
    assert mine == [
        f"{test} (1.50KB, 1.50KB)",
        "allocate (1.50KB, 1.50KB)",
        f"{test} (1.50KB, 1.50KB)",
        "allocate (1.50KB, 1.50KB)",
        f"{test} (512.00B, 0.00B)",
    ]
    deep = [len(line) - len(line.lstrip()) for line in lines if __file__ in line]
    assert deep[1] == deep[0] + 2
    assert "cp/_core" not in file.getvalue()
    assert "pool.py" not in file.getvalue()


def test_line_profile_stops_at_its_depth() -> None:
    with memory_hooks.LineProfileHook(max_depth=3) as hook:
        cp.empty(1)
    file = io.StringIO()
    assert isinstance(hook, memory_hooks.LineProfileHook)
    hook.print_report(file)
    assert len(file.getvalue().splitlines()) == 3


def test_block_map_names_what_is_in_use() -> None:
    pool = cp.get_default_memory_pool()
    x = cp.empty(300, dtype=np.float32)
    y = cp.empty(2048, dtype=np.int8)
    del y
    z = cp.empty(100, dtype=np.int8)
    found = pool.block_map()
    assert (found.used_bytes, found.free_bytes, found.total_bytes) == (2048, 1536, 3584)
    assert found.largest_free_bytes == 1536
    assert found.provenance.source == "modelled"
    assert [(b.size_bytes, b.requested_bytes, b.label, b.is_free) for b in found.blocks] == [
        (1536, 1200, "float32 array of shape (300,)", False),
        (512, 100, "int8 array of shape (100,)", False),
        (1536, 0, "", True),
    ]
    assert [block.address for block in found.blocks] == [x.data.ptr, z.data.ptr, z.data.ptr + 512]
    assert [segment.size_bytes for segment in found.segments] == [1536, 2048]
