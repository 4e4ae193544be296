"""Watching what a program does to streams and memory, for a while: `virtualgpu.protocol.StreamWatcher`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from virtualgpu.model.machine import Machine, VirtualDevice
from virtualgpu.model.recording.watch import RunWatched, Watch
from virtualgpu.records.acts import Act

_UNSEEN = "When the host reads page-locked memory is not seen: wait for a copy before you look at its result."


class Watching:
    """One who watches a virtual machine; several may do so at a time.

    Parameters
    ----------
    machine
        The machine.
    run_kernel
        Runs a launch, and tells what it touches.
    """

    def __init__(self, machine: Machine, run_kernel: RunWatched) -> None:
        self._machine = machine
        self._run_kernel = run_kernel
        self._see: Callable[[Act], None] | None = None
        self._watch: Watch | None = None

    def start(self, see: Callable[[Act], None]) -> None:
        """Begin. What devices were given before counts as ended."""
        clock = self._machine.clock
        with clock.lock:
            if clock.watch is None:
                memories = [device.memory for device in self._machine.devices]
                ranges = self._machine.pinned_ranges
                clock.watch = Watch(memories, self._is_pinned, self._run_kernel, lambda: list(ranges.items()))
                for device in self._machine.devices:
                    device.memory.watched = partial(_segment, clock.watch, device)
            self._see = see
            self._watch = clock.watch
            clock.watch.begin(see)

    def stop(self) -> str:
        """End; in words what could not be seen."""
        clock = self._machine.clock
        watch = self._watch
        see = self._see
        if watch is None or see is None:
            return ""
        watch.finish()
        with clock.lock:
            if watch.end(see) and clock.watch is watch:
                clock.watch = None
                for device in self._machine.devices:
                    device.memory.watched = None
        self._watch = self._see = None
        return _UNSEEN if watch.fills_host else ""

    def _is_pinned(self, address: int) -> bool:
        ranges = self._machine.pinned_ranges
        return any(start <= address < start + size for start, size in list(ranges.items()))


def _segment(watch: Watch, device: VirtualDevice, address: int, size_bytes: int, taken: bool) -> None:
    """The device gave out memory, or took it back."""
    if taken:
        watch.allocated(device.id, address, size_bytes)
    else:
        watch.released(device.id, address, size_bytes, None)
