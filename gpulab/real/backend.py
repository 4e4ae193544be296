"""Implementation of the `Backend` protocol for a real GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import cupy
from cupy.cuda import driver

from gpulab.real import blocks, graphs, warps
from gpulab.real.device import open_nvml, read_device_info, read_device_name
from gpulab.real.load import LoadReader
from gpulab.real.memory.readings import make_reader
from gpulab.real.modules import Probe, compile_ptx, load_probe, make_raw_kernel
from gpulab.real.timeline import RealRecorder
from gpulab.real.watcher import RealWatcher
from virtualgpu.compile import instrument
from virtualgpu.errors import NotSupportedError
from virtualgpu.model.occupancy import occupancy
from virtualgpu.protocol import (
    Accesses,
    Block,
    Blocks,
    Counters,
    Fragments,
    Hazards,
    Launch,
    Observation,
    StreamWatcher,
    TimelineRecorder,
    Warp,
    caches_of,
    kernel_source,
)
from virtualgpu.records import (
    DeviceInfo,
    DeviceMetrics,
    GraphNode,
    GraphRecord,
    KernelSource,
    KernelStats,
    LaunchTrace,
    Metric,
    Occupancy,
    Provenance,
    WarpTrace,
)
from virtualgpu.records.device.attributes import driver_limits
from virtualgpu.records.memory import MemoryReading

_UNOBSERVED_REASONS: dict[type[Observation[Any]], str] = {
    Accesses: "addresses",
    Block: "registers and shared memory at every step",
    Counters: "hardware counters (use Nsight Compute for them)",
    Fragments: "registers of matrix instructions",
    Hazards: "hazards",
}
Instrument = Callable[[str, str], instrument.InstrumentedPtx]


class CudaBackend:
    """The backend for a real CUDA device. It observes a launch by running an instrumented copy of the kernel.

    Parameters
    ----------
    index
        CUDA's device number; None means CuPy's current device.
    """

    def __init__(self, index: int | None = None) -> None:
        self._device = cupy.cuda.Device(index)
        self._nvml = open_nvml(self._device)
        self._info: DeviceInfo | None = None
        self.provenance = Provenance("measured", read_device_name(self._device))
        self._timeline = RealRecorder(self.provenance)
        self._probes: dict[tuple[KernelSource, Instrument], Probe] = {}

    def device_info(self) -> DeviceInfo:
        if self._info is None:
            self._info = read_device_info(self._device, self._nvml)
        return self._info

    def metrics(self) -> DeviceMetrics:
        if self._nvml is None:
            missing_reason = "NVML is not available on this machine"
            return DeviceMetrics(self.provenance, 0, (Metric("NVML", None, why=missing_reason),))
        return self._nvml.metrics(self.provenance)

    def setup(self) -> DeviceMetrics:
        device_setup = () if self._nvml is None else self._nvml.setup()
        with self._device:
            limit_metrics = driver_limits(cupy.cuda.runtime)
        return DeviceMetrics(self.provenance, time.time_ns(), (*device_setup, *limit_metrics))

    def kernel_stats(self, kernel: Any) -> KernelStats:
        with self._device:
            kernel = make_raw_kernel(kernel)
            return KernelStats(
                provenance=self.provenance,
                name=kernel.name,
                target=f"sm_{self._device.compute_capability}",
                registers_per_thread=kernel.num_regs,
                static_shared_bytes=kernel.shared_size_bytes,
                local_bytes=kernel.local_size_bytes,
                constant_bytes=kernel.const_size_bytes,
                max_threads_per_block=kernel.max_threads_per_block,
            )

    def occupancy(self, kernel: Any, block_threads: int, shared_bytes: int = 0) -> Occupancy:
        """Return how many blocks of a kernel fit on an SM, and which resources limit this number."""
        with self._device:
            kernel = make_raw_kernel(kernel)
            return self._compute_occupancy(
                kernel.kernel.ptr, kernel.num_regs, kernel, block_threads, shared_bytes
            )

    def timeline_recorder(self) -> TimelineRecorder:
        self._timeline = RealRecorder(self.provenance)
        return self._timeline

    def stream_watcher(self) -> StreamWatcher:
        return RealWatcher(int(self._device.id), self.ptx)

    def observe(self, launch: Launch, /, *observations: Observation[Any]) -> Any:
        """Run an instrumented copy of a kernel, and return the data that the copy recorded.

        Each instrumented copy makes one kind of observation. For several observations the launch is repeated
        with restored arrays.

        Raises
        ------
        NotSupportedError
            For observations that a GPU does not support: counters, hazards, registers at every step.
        """
        for observation in observations:
            if not isinstance(observation, Blocks | Warp):
                raise NotSupportedError(
                    f"A GPU does not report its {_UNOBSERVED_REASONS[type(observation)]} to a "
                    "running program. A replay on the virtual GPU could report them, but "
                    "this launch is too large for a replay. Choose a smaller grid."
                )
        restores_arrays = any(
            isinstance(observation, Blocks) and observation.restore for observation in observations
        )
        has_cold_caches = caches_of(observations) == "cold"
        records: list[LaunchTrace | WarpTrace] = []
        with self._device, self._timeline.launching(launch):
            kernel = make_raw_kernel(launch.kernel)
            for run_number, observation in enumerate(observations, 1):
                with _restore_arrays(
                    launch.args if restores_arrays or run_number < len(observations) else ()
                ):
                    if has_cold_caches:
                        self._empty_l2()
                    if isinstance(observation, Warp):
                        probe = self._load_probe(kernel, instrument.instrument_warp)
                        records.append(warps.trace_warp(probe, kernel, launch, observation, self.provenance))
                    else:
                        records.append(self._trace_blocks(kernel, launch))
        return tuple(records) if len(observations) > 1 else records[0]

    def _trace_blocks(self, kernel: Any, launch: Launch) -> LaunchTrace:
        probe = self._load_probe(kernel, instrument.instrument_blocks)
        occupancy = self._compute_occupancy(
            probe.function.ptr, probe.registers, kernel, launch.block_threads, launch.shared_bytes
        )
        cost_note = self._describe_probe_cost(kernel, occupancy, launch)
        return blocks.trace_blocks(probe, kernel, launch, self.device_info(), occupancy, cost_note)

    def _empty_l2(self) -> None:
        """Write twice as many bytes as L2 contains, so that no earlier data remain in L2."""
        cupy.zeros(2 * self.device_info().l2_bytes, cupy.uint8)

    def read_graph(self, graph: Any) -> GraphRecord:
        with self._device:
            return graphs.read_graph(graph, self.provenance)

    def set_graph_node(self, graph: Any, node: GraphNode, template: Any) -> None:
        with self._device:
            graphs.set_graph_node(graph, node, template)

    def update_graph(self, graph: Any, other: Any) -> None:
        with self._device:
            graphs.copy_parameters(graph, other)

    def memory_reader(self) -> Callable[[], MemoryReading]:
        return make_reader(self._device, self._nvml)

    def load_reader(self) -> LoadReader:
        if self._nvml is None:
            raise NotSupportedError(
                "NVML is not available on this machine. Some containers and virtual machines do not provide "
                "it."
            )
        return LoadReader(self._nvml)

    def host_ns(self) -> int:
        return time.perf_counter_ns()

    def ptx(self, kernel: Any) -> str:
        """Return the PTX of a kernel for this device without instrumentation."""
        with self._device:
            return compile_ptx(kernel_source(kernel), self._device.compute_capability)

    def _load_probe(self, kernel: Any, instrument: Instrument) -> Probe:
        source = kernel_source(kernel)
        if (source, instrument) not in self._probes:
            self._probes[source, instrument] = load_probe(self.ptx(kernel), source.name, instrument)
        probe = self._probes[source, instrument]
        probe.allow_shared_bytes(kernel)
        return probe

    def _compute_occupancy(
        self, function: int, registers: int, kernel: Any, block_threads: int, shared_bytes: int
    ) -> Occupancy:
        predicted_occupancy = occupancy(
            self.device_info(),
            block_threads,
            registers,
            kernel.shared_size_bytes + shared_bytes,
            provenance=self.provenance,
        )
        measured_blocks = int(
            driver.occupancyMaxActiveBlocksPerMultiprocessor(function, block_threads, shared_bytes)
        )
        if measured_blocks == predicted_occupancy.blocks_per_sm:
            return predicted_occupancy
        # The driver knows this kernel better than the rules do, such as a launch bound.
        blocks_by_limit = {**predicted_occupancy.blocks_by_limit, "driver": measured_blocks}
        return replace(
            predicted_occupancy,
            blocks_per_sm=measured_blocks,
            warps_per_sm=measured_blocks * -(-block_threads // 32),
            blocks_by_limit=blocks_by_limit,
            limiters=tuple(name for name, value in blocks_by_limit.items() if value == measured_blocks),
        )

    def _describe_probe_cost(self, kernel: Any, occupancy: Occupancy, launch: Launch) -> str:
        """Return a note if the instrumentation reduces the number of blocks that fit on an SM, else ""."""
        original_occupancy = self.occupancy(kernel, launch.block_threads, launch.shared_bytes)
        if original_occupancy.blocks_per_sm == occupancy.blocks_per_sm:
            return ""
        return (
            f"the instrumentation needs registers ({original_occupancy.registers_per_thread} to "
            f"{occupancy.registers_per_thread} per thread), so that {occupancy.blocks_per_sm} blocks fit on "
            f"an SM instead of {original_occupancy.blocks_per_sm}"
        )


@contextmanager
def _restore_arrays(args: Sequence[Any]) -> Iterator[None]:
    """Restore the contents of every array in `args` at the end of a ``with`` block."""
    saved_arrays = [(array, array.copy()) for array in args if isinstance(array, cupy.ndarray)]
    try:
        yield
    finally:
        for array, saved_copy in saved_arrays:
            array[...] = saved_copy
