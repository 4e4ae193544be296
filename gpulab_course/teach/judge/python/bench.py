"""The test environment of a device program: a device, a host clock, and recorders of costs and hazards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.analysis.hazards import StreamChecker
from gpulab.analysis.uses import regions_overlap
from gpulab_course.teach.judge.python.counts import ProgramRecord
from gpulab_course.teach.judge.python.memory_use import MemoryUse
from virtualgpu.records import StreamHazard
from virtualgpu.records.acts import HOST, Act, GraphLaunch, HostUse, Region, Work


class Bench:
    """The test environment of a device program, which `ProgramExercise.call_program` receives as its first
    argument.

    Parameters
    ----------
    cp
        The array module.
    backend
        The virtual GPU with its modelled clock; None on a real GPU.

    Attributes
    ----------
    record : ProgramRecord, optional
        The costs of the program; None on a real GPU.
    acts : list of Act
        The program's uses of streams and memory, if they were checked.
    """

    def __init__(self, cp: Any, backend: Any) -> None:
        self.cp = cp
        self.record: ProgramRecord | None = None
        self._backend = backend
        self.acts: list[Act] = []
        self._checker: StreamChecker | None = None
        self._is_recording = False
        self._pinned_copies: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]] = []

    def run_recorded(self, program: Callable[[], Any]) -> Any:
        """Call a program, and store its costs in ``record``. A call inside another call is counted as part of
        the outer call.
        """
        if self._backend is None or self._is_recording:
            return program()
        recorder = self._backend.timeline_recorder()
        machine = self._backend.machine
        waits_before = machine.clock.waits
        bus_bytes = machine.current_device.memory.bus_bytes
        memory_use = MemoryUse()
        current_stream_ptr = self.cp.cuda.get_current_stream().ptr
        recorder.start()
        self._is_recording = True
        try:
            with memory_use.count_memory(machine.current_device):
                return program()
        finally:
            self._is_recording = False
            bus_bytes = machine.current_device.memory.bus_bytes - bus_bytes
            self.record = ProgramRecord(
                recorder.stop(), machine.clock.waits - waits_before, bus_bytes, memory_use, current_stream_ptr
            )

    def copy_to_pinned(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a copy of a NumPy array in pinned memory."""
        memory = self.cp.cuda.alloc_pinned_memory(max(array.nbytes, 1))
        pinned_copy: npt.NDArray[Any] = np.frombuffer(memory, array.dtype, array.size).reshape(array.shape)
        pinned_copy[...] = array
        self._pinned_copies.append((array, pinned_copy))
        return pinned_copy

    def list_pinned_copies(self, array: Any) -> list[npt.NDArray[Any]]:
        """Return the copies of a NumPy array that the method `copy_to_pinned` has made."""
        return [pinned_copy for source_array, pinned_copy in self._pinned_copies if source_array is array]

    def read(self, result: Any) -> Any:
        """Copy a result to the host in the current stream, and return it as a NumPy array or a number."""
        if isinstance(result, self.cp.ndarray):
            return result.get()
        if isinstance(result, np.ndarray):
            self.record_host_use("reads after the call", "the result", reads=(result,))
        return result

    def record_host_use(
        self, verb: str, object_name: str, reads: Sequence[Any] = (), writes: Sequence[Any] = ()
    ) -> None:
        """Record that the host reads or writes arrays. The strings `verb` and `object_name` describe the
        access in hazard messages.
        """
        if self._checker is not None:
            self._checker.handle_act(
                HostUse(
                    verb, _make_memory_regions(reads, object_name), _make_memory_regions(writes, object_name)
                )
            )

    @contextmanager
    def check_streams(self, current_stream: Any) -> Iterator[list[StreamHazard]]:
        """Record all uses of memory in a `with` block, and yield a list for the hazards. After the block, the
        list contains all hazards that were found.
        """
        stream_names = {(self.cp.cuda.Device().id, current_stream.ptr): "current"}
        checker = StreamChecker(stream_names)
        watcher = self._backend.stream_watcher()
        hazards: list[StreamHazard] = []

        def handle_act(act: Act) -> None:
            self.acts.append(act)
            checker.handle_act(act)

        watcher.start(handle_act)
        self._checker = checker
        try:
            yield hazards
        finally:
            self._checker = None
            hazards += checker.report(self._backend.provenance, watcher.stop()).findings

    def writes_to(self, array: Any) -> bool:
        """Return whether the recorded work contains a write to a device array."""
        all_work = [work for act in self.acts for work in _list_work(act)]
        (array_region,) = self.list_memory_regions((array,)) or (None,)
        return array_region is not None and any(
            regions_overlap(region, array_region)
            for work in all_work
            for region in (*work.writes, *work.atomics)
        )

    def list_memory_regions(self, results: Sequence[Any]) -> tuple[Region, ...]:
        """Return the memory regions of those results that are device arrays."""
        arrays = [a for a in results if isinstance(a, self.cp.ndarray)]
        regions = (Region.of_array(a.device.id, a.data.ptr, a.itemsize, a.shape, a.strides) for a in arrays)
        return tuple(region for region in regions if region is not None)

    def keep_host_busy(self, duration_us: float) -> None:
        """Keep the host busy for `duration_us`, by advancing the modelled clock or by waiting in a loop on
        a real GPU.
        """
        if self._backend is not None:
            self._backend.machine.clock.advance(1000 * duration_us)
            return
        end_s = time.perf_counter() + 1e-6 * duration_us
        while time.perf_counter() < end_s:
            pass


def _list_work(act: Act) -> tuple[Work, ...]:
    return (act,) if isinstance(act, Work) else act.nodes if isinstance(act, GraphLaunch) else ()


def _make_memory_regions(arrays: Sequence[npt.NDArray[Any]], object_name: str) -> tuple[Region, ...]:
    regions = []
    for a in arrays:
        region = Region.of_array(HOST, a.ctypes.data, a.itemsize, a.shape, a.strides, object_name)
        if region is not None:
            regions.append(region)
    return tuple(regions)
