"""Peer access, and what passes the ports of each GPU.

A GPU has two ports, NVLink and PCIe, and each has two directions. What goes from one GPU to another takes the
way out of the first and the way in of the second. Two copies out of one port follow each other, so that both
have ended when they would have if they had shared it; opposite directions do not disturb each other. The
way over PCIe is that of the copy engines, which copies to and from the host take, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.model import cost
from virtualgpu.model.clock import Engine, Schedule
from virtualgpu.model.links.topology import chosen, linked
from virtualgpu.model.memory import DeviceMemory
from virtualgpu.records import Activity, DeviceInfo
from virtualgpu.records.traffic.ports import Crossing, LinkKind, Over

MAX_CROSSINGS = 1_000_000  # of one recording


class Linked(Protocol):
    """A device, as far as its links are concerned."""

    @property
    def id(self) -> int: ...
    @property
    def info(self) -> DeviceInfo: ...
    @property
    def memory(self) -> DeviceMemory: ...
    @property
    def schedule(self) -> Schedule: ...


@dataclass(slots=True)
class Passage:
    """What an operation moves from device to device; its `run` says so, and each run anew.

    ``hops`` has source, target, bytes, and the way; ``share`` is the part of the ports' rate that it needs.
    """

    links: Links | None = None
    hops: list[tuple[int, int, int, Over]] = field(default_factory=list)
    share: float = 1.0

    def through(self, links: Links, hops: Sequence[tuple[int, int, int, Over]], share: float = 1.0) -> None:
        """Say what is moved."""
        self.links = links
        self.hops = [hop for hop in hops if hop[2] > 0]
        self.share = share

    @property
    def engines(self) -> tuple[tuple[Engine, float], ...]:
        """The ports that it passes, and how much of each."""
        if self.links is None:
            return ()
        ports = (port for hop in self.hops for port in self.links.ports(*hop[:2], hop[3]))
        return tuple((port, self.share) for port in dict.fromkeys(ports))

    def noted(self, activity: Activity) -> None:
        """Tell those who watch that it has run."""
        if self.links is not None and self.hops:
            self.links.note(activity, self.hops)


class Links:
    """The links of a machine.

    Parameters
    ----------
    devices
        The machine's devices.
    kind
        How they are joined; None: as such GPUs are sold.

    Attributes
    ----------
    kind : str
        How they are joined.
    """

    def __init__(self, devices: Sequence[Linked], kind: LinkKind | None = None) -> None:
        self._devices = devices
        self._infos = [device.info for device in devices]
        self.kind = chosen(self._infos, kind)
        self._out = [Engine() for _ in devices]
        self._in = [Engine() for _ in devices]
        self._access: set[tuple[int, int]] = set()
        self._seen: list[list[Crossing]] = []

    # Peer access

    def can_access(self, device: int, peer: int) -> bool:
        """Whether a device can reach another one's memory; never its own, as CUDA answers."""
        return linked(self.kind, self._infos, device, peer)

    def has_access(self, device: int, peer: int) -> bool:
        """Whether kernels of a device may touch a peer's memory now."""
        return (device, peer) in self._access

    def enable(self, device: int, peer: int) -> bool:
        """Let a device reach a peer's memory; False if it can already.

        Raises
        ------
        CUDARuntimeError
            Status 101 for the device itself, 217 where no link joins them.
        """
        if device == peer:
            raise CUDARuntimeError(
                101, "cudaErrorInvalidDevice", f"invalid device ordinal: {peer} is the current device itself."
            )
        if not self.can_access(device, peer):
            raise CUDARuntimeError(
                217,
                "cudaErrorPeerAccessUnsupported",
                f"peer access is not supported between these two devices: with links={self.kind!r} nothing "
                f"joins {device} and {peer}, and copies go through the host.",
            )
        if (device, peer) in self._access:
            return False
        self._access.add((device, peer))
        self._devices[device].memory.peers.append(self._devices[peer].memory)
        return True

    def disable(self, device: int, peer: int) -> bool:
        """End what `enable` began; False if it was not enabled."""
        if (device, peer) not in self._access:
            return False
        self._access.discard((device, peer))
        self._devices[device].memory.peers.remove(self._devices[peer].memory)
        return True

    # Ways

    def over(self, source: int, target: int) -> Over:
        """How a copy goes: over NVLink if peer access is enabled from either side, else through the host."""
        direct = (source, target) in self._access or (target, source) in self._access
        return "NVLink" if direct else "PCIe"

    def ports(self, source: int, target: int, over: Over) -> tuple[Engine, Engine]:
        """The way out of one device, and the way into the other."""
        if over == "NVLink":
            return self._out[source], self._in[target]
        return self._devices[source].schedule.engine("to host"), self._devices[target].schedule.engine(
            "to device"
        )

    def copy_ns(self, source: int, target: int, size_bytes: int) -> float:
        """What a copy takes that has its ports for itself."""
        infos = self._infos[source], self._infos[target]
        return cost.peer_copy_ns(*infos, size_bytes, self.over(source, target) == "NVLink")

    # What passes

    @contextmanager
    def watched(self) -> Iterator[list[Crossing]]:
        """Collect what passes the ports; the list is full at the end."""
        seen: list[Crossing] = []
        self.begin(seen)
        try:
            yield seen
        finally:
            self.end(seen)

    def begin(self, seen: list[Crossing]) -> None:
        """Tell somebody of all that passes from now on."""
        self._seen.append(seen)

    def end(self, seen: list[Crossing]) -> None:
        """Tell them no more."""
        self._seen = [each for each in self._seen if each is not seen]

    def note(self, activity: Activity, hops: Sequence[tuple[int, int, int, Over]]) -> None:
        """An operation moved bytes from device to device."""
        for seen in self._seen:
            seen.extend(
                Crossing(
                    name=activity.name,
                    source=source,
                    target=target,
                    size_bytes=size_bytes,
                    over=over,
                    start_ns=activity.start_ns,
                    end_ns=activity.end_ns,
                    correlation_id=activity.correlation_id,
                )
                for source, target, size_bytes, over in hops
            )
