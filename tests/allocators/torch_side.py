"""The model as the side that runs recorded sequences (`tools.recordings.torch_pools`)."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

from gpulab.allocators.replay import OutOfMemory
from gpulab.allocators.torch import Settings, TorchAllocator
from gpulab.allocators.torch.device import Device
from tools.recordings.torch_pools import COLUMNS, Step, list_layout
from virtualgpu.records.memory import Action

# codes of recorded events
_ALLOC = 3
_MAP = 5
_STATES = {"free": 0, "used": 1, "waiting": 2}


class Scripted(Device):
    """A device with the addresses of a real one: `segments` are the recorded events."""

    def __init__(self, capacity_bytes: int, segments: list[tuple[int, int, int]], expandable: bool) -> None:
        super().__init__(capacity_bytes)
        self._given = iter([address for code, address, _ in segments if code == _ALLOC])
        self._maps = [(address, size) for code, address, size in segments if code == _MAP]
        self._next = 0

    def malloc(self, size_bytes: int) -> int | None:
        return next(self._given) if self.create_memory(size_bytes) else None

    def free(self, address: int, size_bytes: int) -> None:
        self.release_memory(size_bytes)

    def create_memory(self, size_bytes: int) -> bool:
        self._next += 1
        return super().create_memory(size_bytes)

    def reserve_addresses(self, size_bytes: int) -> int:
        """A new range begins where memory is mapped next."""
        return self._maps[self._next][0]

    def release_addresses(self, address: int) -> None:
        pass


class ModelSide:
    """`TorchAllocator` with the recorder's interface."""

    def __init__(self, total_bytes: int, streams: list[int], expandable: bool = False) -> None:
        self.total_bytes = total_bytes
        self.streams = streams
        self.expandable = expandable
        self.device: Device | None = None

    def start(self, settings: str) -> None:
        chosen = replace(Settings.parse(settings), expandable_segments=self.expandable)
        self.pool = TorchAllocator(chosen, self.total_bytes, device=self.device)
        self.pool.event_sink = self._note
        self.events: list[tuple[str, int, int, int]] = []
        self.alive: dict[int, int] = {}
        self.closed: set[int] = set()

    def _note(self, action: Action, address: int, size: int, requested: int, stream: int) -> None:
        shown = requested if action in ("alloc", "free_requested", "free_completed") else size
        self.gave_back |= action == "segment_free"
        self.events.append((action, address, shown, self.streams.index(stream)))

    def step(self, step: Step) -> None:
        self.gave_back = False
        stream = self.streams[step.stream]
        match step.kind:
            case "alloc":
                with contextlib.suppress(OutOfMemory):
                    self.alive[step.number] = self.pool.malloc(step.value, stream)
            case "free" if step.number in self.alive:
                self.pool.free(self.alive.pop(step.number))
                for number, handle in enumerate(self.streams):
                    if number not in self.closed:
                        self.pool.complete_stream_work(handle)
            case "use" if step.number in self.alive:
                self.pool.record_stream(self.alive[step.number], stream)
            case "close":
                self.closed.add(step.stream)
            case "open":
                self.closed.discard(step.stream)
                self.pool.complete_stream_work(stream)
            case "empty":
                self.closed.clear()
                for handle in self.streams:
                    self.pool.complete_stream_work(handle)
                self.pool.empty_cache()
            case "limit":
                self.pool.set_memory_fraction(step.value / self.total_bytes)

    def open(self, pending: int) -> None:
        """Take over which streams have work left: the allocator waited for the others on the real device.

        That ``cudaFree`` waits for all of them the model has to know by itself.
        """
        for number in list(self.closed):
            if not pending >> number & 1:
                self.closed.discard(number)
                if not self.gave_back:
                    self.pool.complete_stream_work(self.streams[number])

    def row(self) -> list[int]:
        count = self.pool.statistics
        return [
            *(count.read_current(name) for name in COLUMNS[:6]),
            count.num_alloc_retries,
            count.num_ooms,
            sum(1 << number for number in self.closed),
        ]

    def statistics(self) -> dict[str, Any]:
        return {"nested": self.pool.statistics.nested()}

    def finish(self) -> tuple[list[int], list[tuple[str, int, int, int]]]:
        pieces: list[tuple[int, int, bool, bool, list[tuple[int, int]]]] = []
        for segment in self.pool.block_map().segments:
            blocks: list[tuple[int, int]] = []
            number = self.streams.index(segment.stream)
            for block in segment.blocks:
                if block.is_unmapped:
                    blocks = []
                    continue
                if not blocks:
                    pieces.append(
                        (block.address, number, segment.pool == "large", segment.is_expandable, blocks)
                    )
                blocks.append((block.size_bytes, _STATES[block.state]))
        return list_layout(pieces), self.events
