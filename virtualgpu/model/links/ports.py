"""Peer access between GPUs, and the traffic through the ports of each GPU.

A GPU has two ports, NVLink and PCIe, and each has two directions. Data from one GPU to another uses the
outgoing direction of the first and the incoming direction of the second. Two copies out of one port run one
after the other, so that both have ended when they would have if they had shared it; opposite directions do
not affect each other. PCIe uses the copy engines, as copies to and from the host do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.model import cost
from virtualgpu.model.clock import Engine, Schedule
from virtualgpu.model.links.topology import choose_topology, has_nvlink
from virtualgpu.model.memory import DeviceMemory
from virtualgpu.records import Activity, DeviceInfo
from virtualgpu.records.traffic.ports import Crossing, LinkTopology, Route

MAX_CROSSINGS = 1_000_000  # most crossings of one recording


class LinkedDevice(Protocol):
    """The interface of a device that the class `Links` uses."""

    @property
    def id(self) -> int: ...
    @property
    def info(self) -> DeviceInfo: ...
    @property
    def memory(self) -> DeviceMemory: ...
    @property
    def schedule(self) -> Schedule: ...


@dataclass(slots=True)
class PeerTransfers:
    """The transfers between devices that an operation causes. Each run of the operation replaces the
    transfers.

    ``transfers`` contains source, target, bytes and route of each transfer; ``port_share`` is the part of
    the ports' rate that the transfers need.
    """

    links: Links | None = None
    transfers: list[tuple[int, int, int, Route]] = field(default_factory=list)
    port_share: float = 1.0

    def set_transfers(
        self, links: Links, transfers: Sequence[tuple[int, int, int, Route]], port_share: float = 1.0
    ) -> None:
        """Set the transfers of the current run of the operation between devices."""
        self.links = links
        self.transfers = [transfer for transfer in transfers if transfer[2] > 0]
        self.port_share = port_share

    @property
    def engines(self) -> tuple[tuple[Engine, float], ...]:
        """The ports that the transfers use, with the fraction of each port's rate that they need."""
        if self.links is None:
            return ()
        ports = (
            port for transfer in self.transfers for port in self.links.find_ports(*transfer[:2], transfer[3])
        )
        return tuple((port, self.port_share) for port in dict.fromkeys(ports))

    def report(self, activity: Activity) -> None:
        """Add the transfers of a finished operation to all recordings of port traffic."""
        if self.links is not None and self.transfers:
            self.links.record_transfers(activity, self.transfers)


class Links:
    """The links between the GPUs of a machine, and the permissions to access the memory of other GPUs.

    Parameters
    ----------
    devices
        The machine's devices.
    topology
        Topology of the links; None: that of such GPUs in products.

    Attributes
    ----------
    topology : str
        Topology of the links.
    """

    def __init__(self, devices: Sequence[LinkedDevice], topology: LinkTopology | None = None) -> None:
        self._devices = devices
        self._infos = [device.info for device in devices]
        self.topology = choose_topology(self._infos, topology)
        self._outgoing_ports = [Engine() for _ in devices]
        self._incoming_ports = [Engine() for _ in devices]
        self._enabled_access: set[tuple[int, int]] = set()
        self._recordings: list[list[Crossing]] = []

    # Peer access

    def can_access(self, device: int, peer: int) -> bool:
        """Return whether a device can access the memory of another device over a link."""
        return has_nvlink(self.topology, self._infos, device, peer)

    def has_access(self, device: int, peer: int) -> bool:
        """Return whether access from a device to the memory of another device is enabled."""
        return (device, peer) in self._enabled_access

    def enable_access(self, device: int, peer: int) -> bool:
        """Enable access from a device to the memory of another one. The result is False if access was already
        enabled.

        Raises
        ------
        CUDARuntimeError
            Status 101 for the device itself, 217 if no link connects them.
        """
        if device == peer:
            raise CUDARuntimeError(
                101, "cudaErrorInvalidDevice", f"invalid device ordinal: {peer} is the current device itself."
            )
        if not self.can_access(device, peer):
            raise CUDARuntimeError(
                217,
                "cudaErrorPeerAccessUnsupported",
                "peer access is not supported between these two devices: with "
                f"links={self.topology!r} there is no link between {device} and {peer}, so "
                "copies go through the host.",
            )
        if (device, peer) in self._enabled_access:
            return False
        self._enabled_access.add((device, peer))
        self._devices[device].memory.peers.append(self._devices[peer].memory)
        return True

    def disable_access(self, device: int, peer: int) -> bool:
        """Disable access from a device to the memory of another one. The result is False if access was not
        enabled.
        """
        if (device, peer) not in self._enabled_access:
            return False
        self._enabled_access.discard((device, peer))
        self._devices[device].memory.peers.remove(self._devices[peer].memory)
        return True

    # Routes

    def find_route(self, source: int, target: int) -> Route:
        """Return the route of a copy between two devices. The route is NVLink if peer access is enabled in
        either direction, and PCIe otherwise.
        """
        has_direct_access = (source, target) in self._enabled_access or (
            target,
            source,
        ) in self._enabled_access
        return "NVLink" if has_direct_access else "PCIe"

    def find_ports(self, source: int, target: int, route: Route) -> tuple[Engine, Engine]:
        """Return the outgoing port of the source device and the incoming port of the target device for a
        copy.
        """
        if route == "NVLink":
            return self._outgoing_ports[source], self._incoming_ports[target]
        outgoing_port = self._devices[source].schedule.engine("to host")
        incoming_port = self._devices[target].schedule.engine("to device")
        return outgoing_port, incoming_port

    def copy_ns(self, source: int, target: int, size_bytes: int) -> float:
        """Return the duration in ns of a copy between two devices if no other transfer uses their ports."""
        infos = self._infos[source], self._infos[target]
        return cost.peer_copy_ns(*infos, size_bytes, self.find_route(source, target) == "NVLink")

    # Recordings of the traffic

    @contextmanager
    def collect_crossings(self) -> Iterator[list[Crossing]]:
        """Context manager that collects the traffic through the ports in a list."""
        crossings: list[Crossing] = []
        self.begin_recording(crossings)
        try:
            yield crossings
        finally:
            self.end_recording(crossings)

    def begin_recording(self, crossings: list[Crossing]) -> None:
        """Begin to record the traffic through all ports in the given list."""
        self._recordings.append(crossings)

    def end_recording(self, crossings: list[Crossing]) -> None:
        """Stop recording the traffic through the ports in the given list."""
        self._recordings = [recording for recording in self._recordings if recording is not crossings]

    def record_transfers(self, activity: Activity, transfers: Sequence[tuple[int, int, int, Route]]) -> None:
        """Record that an operation has moved bytes between devices."""
        for crossings in self._recordings:
            crossings.extend(
                Crossing(
                    name=activity.name,
                    source=source_id,
                    target=target_id,
                    size_bytes=size_bytes,
                    over=route,
                    start_ns=activity.start_ns,
                    end_ns=activity.end_ns,
                    correlation_id=activity.correlation_id,
                )
                for source_id, target_id, size_bytes, route in transfers
            )
