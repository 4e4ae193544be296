"""Recording of the traffic through the ports of a machine's GPUs."""

from __future__ import annotations

from virtualgpu.errors import GpulabError
from virtualgpu.model.links.ports import MAX_CROSSINGS
from virtualgpu.model.machine import Machine
from virtualgpu.records.traffic.ports import Crossing, PortTraffic


class PortRecorder:
    """A recorder of the traffic through the ports of a machine. Several recorders can be active at once.

    Parameters
    ----------
    machine
        The machine.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._crossings: list[Crossing] | None = None

    def start(self) -> None:
        """Begin to record the traffic through the ports."""
        self._crossings = []
        self._machine.links.begin_recording(self._crossings)

    def stop(self) -> PortTraffic:
        """End the recording, and return the traffic.

        Raises
        ------
        GpulabError
            If it has not begun.
        """
        machine = self._machine
        crossings = self._crossings
        if crossings is None:
            raise GpulabError("This recording has not started. Call start() first.")
        machine.links.end_recording(crossings)
        return PortTraffic(
            provenance=machine.devices[0].info.as_virtual,
            links=machine.links.topology,
            devices=len(machine.devices),
            crossings=tuple(crossings[:MAX_CROSSINGS]),
            lost=max(0, len(crossings) - MAX_CROSSINGS),
        )
