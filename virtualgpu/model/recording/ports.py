"""What passes the ports of a machine's GPUs during a block of the program."""

from __future__ import annotations

from virtualgpu.errors import GpulabError
from virtualgpu.model.links.ports import MAX_CROSSINGS
from virtualgpu.model.machine import Machine
from virtualgpu.records.traffic.ports import Crossing, PortTraffic


class PortRecorder:
    """Collects it from `start` to `stop`; several may do so at once.

    Parameters
    ----------
    machine
        The machine.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._seen: list[Crossing] | None = None

    def start(self) -> None:
        """Begin."""
        self._seen = []
        self._machine.links.begin(self._seen)

    def stop(self) -> PortTraffic:
        """End, and return what was seen.

        Raises
        ------
        GpulabError
            If it has not begun.
        """
        machine = self._machine
        seen = self._seen
        if seen is None:
            raise GpulabError("This recording has not begun: start() it first.")
        machine.links.end(seen)
        return PortTraffic(
            provenance=machine.devices[0].info.as_virtual,
            links=machine.links.kind,
            devices=len(machine.devices),
            crossings=tuple(seen[:MAX_CROSSINGS]),
            lost=max(0, len(seen) - MAX_CROSSINGS),
        )
