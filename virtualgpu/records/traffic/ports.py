"""What went out and in at the ports of several GPUs: copies, kernels that reach over, collective calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from virtualgpu.records.origin import Provenance

# How GPUs of one host are joined: all with each other, two by two, or only through the host.
LinkKind = Literal["nvswitch", "pairs", "host"]
# Each GPU has a port of either kind; what goes over PCIe between GPUs goes through the host's memory.
Over = Literal["NVLink", "PCIe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Bytes that went from one GPU to another: what moved them (``Memcpy PtoP``, a kernel's name), by which
    way, and from when to when. ``correlation_id`` is that of the operation."""

    name: str
    source: int
    target: int
    size_bytes: int
    over: Over
    start_ns: int
    end_ns: int
    correlation_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PortTraffic:
    """What went between the GPUs of one host during a block of the program, in the order in which it was
    given. Copies between a GPU and the host are not among it. ``lost`` counts what there was no room for.
    """

    provenance: Provenance
    links: LinkKind
    devices: int
    crossings: tuple[Crossing, ...] = ()
    lost: int = 0

    def out_bytes(self, device: int, over: Over | None = None) -> int:
        """What went out of a GPU, by one way or (None) by all."""
        return sum(c.size_bytes for c in self.crossings if c.source == device and over in (None, c.over))

    def in_bytes(self, device: int, over: Over | None = None) -> int:
        """What came into a GPU, by one way or (None) by all."""
        return sum(c.size_bytes for c in self.crossings if c.target == device and over in (None, c.over))

    @property
    def matrix(self) -> tuple[tuple[int, ...], ...]:
        """Bytes from each GPU (row) to each (column)."""
        sums = [[0] * self.devices for _ in range(self.devices)]
        for each in self.crossings:
            sums[each.source][each.target] += each.size_bytes
        return tuple(map(tuple, sums))

    @property
    def busiest_bytes(self) -> int:
        """The most that went through one port in one direction."""
        return self._busiest(lambda each: each.size_bytes)

    @property
    def busiest_ns(self) -> int:
        """The longest that one port had to let through in one direction, one after another."""
        return self._busiest(lambda each: each.end_ns - each.start_ns)

    def _busiest(self, what: Callable[[Crossing], int]) -> int:
        ways: dict[tuple[int, Over, bool], int] = {}
        for each in self.crossings:
            for way in ((each.source, each.over, True), (each.target, each.over, False)):
                ways[way] = ways.get(way, 0) + what(each)
        return max(ways.values(), default=0)
