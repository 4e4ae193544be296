"""Traffic through the ports of several GPUs: copies, kernel accesses to remote memory, collectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from virtualgpu.records.origin import Provenance

# Topology of the GPUs of one host: all connected, connected in pairs, or only through the host.
LinkTopology = Literal["nvswitch", "pairs", "host"]
# Each GPU has a port of either kind; traffic between GPUs over PCIe passes through the host's memory.
Route = Literal["NVLink", "PCIe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """A transfer of bytes from one GPU to another, with its operation, its link and its times.

    The field ``name`` is the name of the operation, such as ``Memcpy PtoP``, and ``correlation_id`` is its
    number.
    """

    name: str
    source: int
    target: int
    size_bytes: int
    over: Route
    start_ns: int
    end_ns: int
    correlation_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PortTraffic:
    """The traffic between the GPUs of one host during a part of the program, in the order of submission.

    Copies between a GPU and the host are not included. ``lost`` counts crossings beyond the limit.
    """

    provenance: Provenance
    links: LinkTopology
    devices: int
    crossings: tuple[Crossing, ...] = ()
    lost: int = 0

    def out_bytes(self, device: int, over: Route | None = None) -> int:
        """Return the number of bytes that a GPU sent over one type of link. With None, all links are
        included.
        """
        return sum(
            crossing.size_bytes
            for crossing in self.crossings
            if crossing.source == device and over in (None, crossing.over)
        )

    def in_bytes(self, device: int, over: Route | None = None) -> int:
        """Return the number of bytes that a GPU received over one type of link. With None, all links are
        included.
        """
        return sum(
            crossing.size_bytes
            for crossing in self.crossings
            if crossing.target == device and over in (None, crossing.over)
        )

    @property
    def matrix(self) -> tuple[tuple[int, ...], ...]:
        """The number of bytes that each GPU (row) sent to each other GPU (column)."""
        byte_matrix = [[0] * self.devices for _ in range(self.devices)]
        for crossing in self.crossings:
            byte_matrix[crossing.source][crossing.target] += crossing.size_bytes
        return tuple(map(tuple, byte_matrix))

    @property
    def busiest_bytes(self) -> int:
        """The largest number of bytes that passed through one port in one direction."""
        total_by_port: dict[tuple[int, Route, bool], int] = {}
        for crossing in self.crossings:
            outgoing = (crossing.source, crossing.over, True)
            incoming = (crossing.target, crossing.over, False)
            for port in (outgoing, incoming):
                total_by_port[port] = total_by_port.get(port, 0) + crossing.size_bytes
        return max(total_by_port.values(), default=0)
