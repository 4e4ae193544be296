"""The memory pool against a model of CuPy's: random programs of allocations, frees, streams and limits.

Where several free blocks fit equally well CuPy takes any of them (it compares the addresses of its own Python
objects): the model accepts any and follows.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import virtualgpu.cp as cp
from tests.virtual.pool_model import UNIT, ModelPool
from virtualgpu.cp.cuda.memory_hook import MemoryHook
from virtualgpu.cuda_errors import OutOfMemoryError
from virtualgpu.model import machine as slot
from virtualgpu.model.devices import device_info
from virtualgpu.model.machine import Machine


class Books(MemoryHook):
    """What the hooks say is in use: address and size."""

    name = "books"

    def __init__(self) -> None:
        self.live: dict[int, tuple[int, int]] = {}
        self.from_device = 0

    def alloc_postprocess(self, **kwargs: Any) -> None:
        self.from_device += kwargs["mem_size"] if kwargs["mem_ptr"] else 0

    def malloc_postprocess(self, **kwargs: Any) -> None:
        if kwargs["mem_ptr"]:
            self.live[kwargs["pmem_id"]] = (kwargs["mem_ptr"], kwargs["mem_size"])

    def free_postprocess(self, **kwargs: Any) -> None:
        assert self.live.pop(kwargs["pmem_id"]) == (kwargs["mem_ptr"], kwargs["mem_size"])


class PoolAgainstModel(RuleBasedStateMachine):
    """Runs each step on the pool and on the model; after each the two must agree."""

    @initialize()
    def start(self) -> None:
        self.previous = slot._slot.machine
        slot.use(Machine([device_info("A100")]))
        self.pool = cp.cuda.MemoryPool()
        self.streams = [cp.cuda.Stream.null, cp.cuda.Stream(), cp.cuda.Stream(non_blocking=True)]
        self.model = ModelPool()
        self.held: dict[int, Any] = {}
        self.stream_of: dict[int, int] = {}
        self.books = Books()
        self.books.__enter__()
        self.taken = 0
        for stream in (0, 0, 1):  # room to split and join in
            self.malloc(12 * UNIT, stream)
        for name in list(self.held):
            self._free(name)

    def teardown(self) -> None:
        if hasattr(self, "books"):
            self.held.clear()
            self.books.__exit__(None, None, None)
            slot._slot.machine = self.previous

    @rule(units=st.integers(1, 3), stream=st.integers(0, 1))
    def malloc_piece(self, units: int, stream: int) -> None:
        self.malloc(units * UNIT, stream)

    @rule(size=st.integers(1, 9 * UNIT), stream=st.integers(0, 2))
    def malloc(self, size: int, stream: int) -> None:
        units = -(-size // UNIT)
        handle = self.streams[stream].ptr
        fitting = self.model.fitting(units, handle)
        refused = not fitting and self.model.refuses(units)
        with self.streams[stream]:
            try:
                pointer = self.pool.malloc(size)
            except OutOfMemoryError:
                assert refused
                return
        assert not refused
        assert not fitting or pointer.ptr in fitting
        name = self.model.take(pointer.ptr, units, handle, new=not fitting)
        self.taken += 0 if fitting else units * UNIT
        self.held[name], self.stream_of[name] = pointer, stream

    @precondition(lambda self: self.held)
    @rule(data=st.data(), by_hand=st.booleans())
    def free(self, data: Any, by_hand: bool) -> None:
        self._free(data.draw(st.sampled_from(sorted(self.held))), by_hand)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def replace_by_less(self, data: Any) -> None:
        """Free a block and take a part of it: the rest lies between two blocks in use more often."""
        name = data.draw(st.sampled_from(sorted(self.held)))
        size = self.held[name].mem.size
        stream = self.stream_of[name]
        self._free(name)
        self.malloc(data.draw(st.integers(1, size)), stream)

    @precondition(lambda self: self.model.limit)
    @rule(beyond=st.integers(-1, 1), stream=st.integers(0, 1), whole=st.booleans())
    def malloc_up_to_the_limit(self, beyond: int, stream: int, whole: bool) -> None:
        """Ask for what is left below the limit or for all of it, to the byte."""
        size = self.model.limit - (0 if whole else self.pool.total_bytes()) + beyond
        if size > 0:
            self.malloc(size, stream)

    def _free(self, name: int, by_hand: bool = True) -> None:
        pointer = self.held.pop(name)
        self.model.free(name)
        if by_hand:
            pointer.mem.free()

    @rule(stream=st.sampled_from([None, 0, 1, 2]))
    def free_all_blocks(self, stream: int | None) -> None:
        chosen = None if stream is None else self.streams[stream]
        self.pool.free_all_blocks(chosen)
        self.model.free_all_blocks(None if chosen is None else chosen.ptr)

    @rule(units=st.integers(0, 24), odd=st.integers(-1, 1))
    def set_limit(self, units: int, odd: int) -> None:
        """Also a byte more and a byte less than whole units."""
        self.model.limit = max(0, units * UNIT + odd)
        self.pool.set_limit(size=self.model.limit)

    @invariant()
    def numbers_agree(self) -> None:
        used = self.model.units(True) * UNIT
        free = self.model.units(False) * UNIT
        blocks = [run for segment in self.model.segments for run in segment.runs()]
        assert self.pool.used_bytes() == used
        assert self.pool.free_bytes() == free
        assert self.pool.total_bytes() == used + free
        assert self.pool.n_free_blocks() == sum(not owner for _, _, owner in blocks)

    @invariant()
    def blocks_tile_their_segments(self) -> None:
        found = self.pool.block_map()
        want = sorted(self.model.segments, key=lambda segment: segment.address)
        assert [(s.address, s.stream, s.size_bytes) for s in found.segments] == [
            (s.address, s.stream, len(s.owners) * UNIT) for s in want
        ]
        for segment, model in zip(found.segments, want, strict=True):
            assert [(b.address, b.size_bytes, b.is_free) for b in segment.blocks] == [
                (at, count * UNIT, not owner) for at, count, owner in model.runs()
            ]
            assert all(b.requested_bytes <= b.size_bytes for b in segment.blocks)
            assert all((b.requested_bytes == 0) is b.is_free for b in segment.blocks)

    @invariant()
    def hooks_keep_the_same_books(self) -> None:
        in_use = {(at, count * UNIT) for s in self.model.segments for at, count, owner in s.runs() if owner}
        assert set(self.books.live.values()) == in_use
        assert self.books.from_device == self.taken


PoolAgainstModel.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
TestPool = PoolAgainstModel.TestCase
