"""Observation of a program's use of streams and memory: `virtualgpu.protocol.StreamWatcher`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from virtualgpu.model.machine import Machine, VirtualDevice
from virtualgpu.model.recording.watch import RunWatched, StreamWatch
from virtualgpu.records.acts import Act

_UNSEEN_READS_NOTE = (
    "Reads of pinned memory by the host are not observed: wait for a copy before you read its result."
)


class MachineObserver:
    """An observer of the streams and memory of a virtual machine. Several observers can be active at once.

    Parameters
    ----------
    machine
        The machine.
    run_kernel
        Runs a launch, and returns the memory that it accesses.
    """

    def __init__(self, machine: Machine, run_kernel: RunWatched) -> None:
        self._machine = machine
        self._run_kernel = run_kernel
        self._observer: Callable[[Act], None] | None = None
        self._stream_watch: StreamWatch | None = None

    def start(self, observer: Callable[[Act], None]) -> None:
        """Begin the observation. Operations that were submitted earlier count as completed."""
        clock = self._machine.clock
        with clock.lock:
            if clock.watch is None:
                memories = [device.memory for device in self._machine.devices]
                pinned_ranges = self._machine.pinned_ranges
                clock.watch = StreamWatch(
                    memories, self._is_pinned, self._run_kernel, lambda: list(pinned_ranges.items())
                )
                for device in self._machine.devices:
                    device.memory.segment_callback = partial(_report_segment, clock.watch, device)
            self._observer = observer
            self._stream_watch = clock.watch
            clock.watch.add_observer(observer)

    def stop(self) -> str:
        """End the observation, and return a description of the memory accesses that could not be observed."""
        clock = self._machine.clock
        stream_watch = self._stream_watch
        observer = self._observer
        if stream_watch is None or observer is None:
            return ""
        stream_watch.report_remaining_changes()
        with clock.lock:
            if stream_watch.remove_observer(observer) and clock.watch is stream_watch:
                clock.watch = None
                for device in self._machine.devices:
                    device.memory.segment_callback = None
        self._stream_watch = None
        self._observer = None
        return _UNSEEN_READS_NOTE if stream_watch.writes_host_memory else ""

    def _is_pinned(self, address: int) -> bool:
        pinned_ranges = self._machine.pinned_ranges
        return any(
            pinned_start <= address < pinned_start + size
            for pinned_start, size in list(pinned_ranges.items())
        )


def _report_segment(
    watch: StreamWatch, device: VirtualDevice, address: int, size_bytes: int, is_allocation: bool
) -> None:
    """Report the allocation or the free of a segment of device memory to the watch."""
    if is_allocation:
        watch.note_allocation(device.id, address, size_bytes)
    else:
        watch.note_release(device.id, address, size_bytes, None)
