"""Records one timeline of a real GPU through CUPTI, from `start` to `stop`."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from typing import Any

import cupy
from cupy.cuda import runtime

from gpulab.real.cupti import library as cupti
from gpulab.real.cupti.lines import LineWatch
from gpulab.real.cupti.records import Parts, Records, Seen
from virtualgpu.errors import GpulabError
from virtualgpu.records import Provenance, Timeline
from virtualgpu.records.timeline import HostCall, StreamInfo, Synchronization

_KINDS = (
    cupti.CONCURRENT_KERNEL, cupti.MEMCPY, cupti.MEMCPY2, cupti.MEMSET, cupti.SYNCHRONIZATION,
    cupti.CUDA_EVENT, cupti.STREAM, cupti.MARKER, cupti.MARKER_DATA, cupti.OVERHEAD, cupti.GRAPH_HOST_NODE,
    cupti.HOST_LAUNCH,
)  # fmt: skip
# What gives work to a stream, waits, or takes long. CuPy asks for much more, such as the current device.
_CALLS = {
    cupti.DRIVER_API: frozenset(
        {"cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel", "cuModuleLoadData",
         "cuModuleLoadDataEx", "cuLibraryLoadData", "cuGraphLaunch", "cuStreamSynchronize",
         "cuEventSynchronize", "cuCtxSynchronize", "cuMemcpyAsync", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync",
         "cuMemcpyDtoDAsync", "cuStreamWaitEvent", "cuMemAllocAsync", "cuMemFreeAsync"}
    ),
    cupti.RUNTIME_API: frozenset(
        {"cudaLaunchKernel", "cudaLaunchKernelExC", "cudaLaunchCooperativeKernel", "cudaLaunchHostFunc",
         "cudaMemcpy", "cudaMemcpyAsync", "cudaMemcpy2D", "cudaMemcpy2DAsync", "cudaMemcpy3D",
         "cudaMemcpy3DAsync", "cudaMemcpyPeer", "cudaMemcpyPeerAsync", "cudaMemcpyToSymbolAsync",
         "cudaMemset", "cudaMemsetAsync", "cudaMalloc", "cudaMallocAsync", "cudaMallocManaged",
         "cudaMallocHost", "cudaHostAlloc", "cudaFree", "cudaFreeAsync", "cudaFreeHost", "cudaHostRegister",
         "cudaHostUnregister", "cudaMemPrefetchAsync", "cudaMemAdvise", "cudaDeviceSynchronize",
         "cudaStreamSynchronize", "cudaEventSynchronize", "cudaStreamWaitEvent", "cudaEventRecord",
         "cudaEventRecordWithFlags", "cudaEventQuery", "cudaStreamQuery", "cudaStreamCreate",
         "cudaStreamCreateWithFlags", "cudaStreamCreateWithPriority", "cudaStreamDestroy",
         "cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate",
         "cudaGraphInstantiateWithFlags", "cudaGraphLaunch", "cudaGraphUpload", "cudaGraphExecUpdate"}
    ),
}  # fmt: skip
_LEGACY, _PER_THREAD = 0, 2


class CuptiRecorder:
    """Records what all devices of this process run, its calls into CUDA and its NVTX ranges.

    Parameters
    ----------
    library
        The process's CUPTI.
    provenance
        The device in use.
    """

    def __init__(self, library: cupti.Cupti, provenance: Provenance) -> None:
        self._cupti = library
        self._provenance = provenance
        self._lines = LineWatch()
        self._start_ns = 0
        self._ahead_ns = 0  # CUPTI's clock is this much ahead of Python's

    def start(self) -> None:
        """Begin.

        Raises
        ------
        CuptiError
            If CUPTI refuses; its result is `library.TAKEN` where another tool holds it.
        """
        self._cupti.start(_KINDS, _CALLS)
        self._ahead_ns = self._ahead()
        self._lines.start()
        self._start_ns = self._cupti.timestamp()

    def stop(self) -> Timeline:
        """Wait for the device, end, and return what was recorded."""
        self._lines.stop()
        end_ns = self._cupti.timestamp()
        try:
            runtime.deviceSynchronize()
        finally:
            self._cupti.stop()
        records = Records(self._cupti.call_names)
        for buffer, offsets in self._cupti.buffers():
            records.add(buffer, offsets)
        parts = records.parts(self._seen())
        lost = self._cupti.dropped() + parts.unfinished

        def within(each: HostCall | Synchronization) -> bool:
            # The synchronization that ends the recording is none of the program's.
            return self._start_ns <= each.start_ns < end_ns

        return Timeline(
            self._provenance,
            "CUPTI",
            self._start_ns,
            max([end_ns, *(activity.end_ns for activity in parts.activities)]),
            tuple(sorted(parts.activities, key=lambda each: (each.start_ns, each.correlation_id))),
            tuple(filter(within, parts.calls)),
            tuple(filter(within, parts.synchronizations)),
            tuple(each for each in parts.ranges if self._start_ns <= each.end_ns),
            tuple(parts.streams),
            lost,
            _note(parts, lost),
        )

    def _ahead(self) -> int:
        """How far CUPTI's clock is ahead of `time.time_ns`: the closest of some readings."""
        readings = []
        for _ in range(16):
            before, there, after = time.time_ns(), self._cupti.timestamp(), time.time_ns()
            readings.append((after - before, there - (before + after) // 2))
        return min(readings)[1]

    def _seen(self) -> Seen:
        legacy = self._cupti.stream_id(_LEGACY)
        ahead, line = self._ahead_ns, self._lines.line
        return Seen(
            legacy,
            self._streams(legacy),
            {
                thread.native_id: thread.ident
                for thread in threading.enumerate()
                if thread.native_id is not None and thread.ident is not None
            },
            lambda thread, time_ns, call: line(thread, time_ns - ahead, call),
        )

    def _streams(self, legacy: int) -> dict[int, StreamInfo]:
        """The program's streams that are still there, by CUPTI's number."""
        device = int(cupy.cuda.Device().id)
        found = {legacy: StreamInfo(device, legacy, "default stream")}
        streams: list[Any] = [each for each in gc.get_objects() if isinstance(each, cupy.cuda.Stream)]
        handles = {int(each.ptr): each for each in streams if each.ptr not in (_LEGACY, 1)}
        for handle in sorted(handles):
            stream = handles[handle]
            with contextlib.suppress(cupti.CuptiError, runtime.CUDARuntimeError):
                number = self._cupti.stream_id(handle)
                name = "per-thread default stream" if handle == _PER_THREAD else f"stream {len(found)}"
                non_blocking = bool(runtime.streamGetFlags(handle) & runtime.streamNonBlocking)
                of = device if stream.device_id < 0 else int(stream.device_id)
                priority = int(runtime.streamGetPriority(handle))
                found[number] = StreamInfo(of, number, name, non_blocking, priority)
        return found


def refuse_capture() -> None:
    """Let the device end what it was given before.

    Raises
    ------
    GpulabError
        While a stream captures a graph.
    """
    try:
        runtime.deviceSynchronize()
    except runtime.CUDARuntimeError as error:
        if error.status not in (900, 901, 906):
            raise
        raise GpulabError(
            "A stream captures a graph, so nothing runs that a timeline could show: begin the timeline "
            "before begin_capture(), or around the graph's launch."
        ) from error


def _note(parts: Parts, lost: int) -> str:
    words = []
    if lost:
        words.append(f"CUPTI gave no times for {lost:,} records")
    if parts.graphs:
        words.append("the order of nodes within a graph is as it was seen, not the graph's edges")
    return "; ".join(words)
