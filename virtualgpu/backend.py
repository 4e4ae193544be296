"""The virtual GPU's implementation of `virtualgpu.protocol.Backend`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from virtualgpu import cp
from virtualgpu.cp._core.raw_kernel import RawKernel
from virtualgpu.cp.cuda.memory import MemoryAsyncPool, MemoryPool
from virtualgpu.cp.cuda.stream import get_current_stream
from virtualgpu.errors import NotSupportedError
from virtualgpu.launch import caching, debugging
from virtualgpu.launch.compiled import CompiledModule, check_registers_fit, compile_module
from virtualgpu.launch.launch import Launch, kernel_source
from virtualgpu.launch.prepare import FinishedLaunch, PreparedLaunch, prepare_launch
from virtualgpu.launch.watching import WatchedLaunch
from virtualgpu.model import cost
from virtualgpu.model.machine import Machine
from virtualgpu.model.recording.checking import MachineObserver
from virtualgpu.model.recording.ports import PortRecorder
from virtualgpu.model.recording.timeline import Recording
from virtualgpu.protocol import (
    Accesses,
    Block,
    Blocks,
    Costs,
    Counters,
    Fragments,
    Hazards,
    LoadReader,
    Observation,
    Warp,
    caches_of,
)
from virtualgpu.records import (
    DeviceInfo,
    DeviceMetrics,
    GraphNode,
    GraphRecord,
    KernelStats,
    Metric,
    Occupancy,
    Provenance,
    WarpTrace,
)
from virtualgpu.records.device.attributes import READINGS, driver_limits
from virtualgpu.records.memory import MemoryReading

if TYPE_CHECKING:
    from virtualgpu.engine import RunOptions, TraceRequest

R = TypeVar("R")

NO_SENSORS = "virtual GPU: no sensors"


class VirtualBackend:
    """Implementation of the `virtualgpu.protocol.Backend` protocol for virtual GPUs. Unless stated otherwise,
    the methods apply to the current device.

    Parameters
    ----------
    machine
        The machine. Kernels can be `RawKernel`s, or `KernelSource`s of other kernels.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    @property
    def cp(self) -> Any:
        """The array module ``virtualgpu.cp``."""
        return cp

    @property
    def provenance(self) -> Provenance:
        return self.device_info().as_virtual

    def device_info(self) -> DeviceInfo:
        """Return the compute capability and the limits of the current device."""
        return self.machine.current_device.info

    def metrics(self) -> DeviceMetrics:
        """Return the names of NVML's metrics without values, because a virtual GPU has no sensors."""
        metrics = tuple(Metric(name, None, unit, NO_SENSORS) for name, unit in READINGS)
        return DeviceMetrics(self.provenance, self.machine.clock.now_ns, metrics)

    def setup(self) -> DeviceMetrics:
        """Return the limits that the driver sets, such as the size of the device heap."""
        return DeviceMetrics(self.provenance, self.machine.clock.now_ns, driver_limits(cp.cuda.runtime))

    def kernel_stats(self, kernel: Any) -> KernelStats:
        """Return the registers and memory that a kernel uses on the current device, as chosen by ptxas."""
        module = self._compile_kernel(kernel)
        return module.stats(module.symbol(kernel.name), self.device_info())

    def occupancy(self, kernel: Any, block_threads: int, shared_bytes: int = 0) -> Occupancy:
        """Return the theoretical occupancy of a kernel launch. If the register count from ptxas is unknown,
        an estimate is used.
        """
        module = self._compile_kernel(kernel)
        kernel_resources = module.resources[module.symbol(kernel.name)]
        return check_registers_fit(
            self.device_info(),
            kernel_resources,
            block_threads,
            kernel_resources.static_shared_bytes + shared_bytes,
        )

    def timeline_recorder(self) -> Recording:
        """Return a recorder for the operations on all devices and the calls on the host."""
        return Recording(self.machine)

    def port_recorder(self) -> PortRecorder:
        """Return a recorder for the data traffic between the devices."""
        return PortRecorder(self.machine)

    def step_ns(
        self, messages: Sequence[tuple[int, int, int, bool]], sums: Sequence[tuple[int, int]]
    ) -> tuple[float, float]:
        """Return the modelled duration of a collective step's copies and of the whole step, in ns."""
        return cost.step_ns([device.info for device in self.machine.devices], messages, sums)

    def stream_watcher(self) -> MachineObserver:
        """Return a watcher that reports each operation on a device and the memory that it accesses."""
        from virtualgpu.sanitizer.touched import run_watched

        return MachineObserver(self.machine, run_watched)

    @overload
    def observe(self, launch: Launch, observation: Observation[R], /) -> R: ...
    @overload
    def observe(self, launch: Launch, /, *observations: Observation[Any]) -> tuple[Any, ...]: ...
    def observe(self, launch: Launch, /, *observations: Observation[Any]) -> Any:
        """Run a kernel, and return one record for each requested observation.

        A hazard check and each additional observed warp or block need a separate run. If the contents of
        arrays are restored (``Blocks(restore=True)``, `Hazards`), the modelled clock and L2's contents do not
        change.
        """
        prepared_launch = replace(self.prepared(launch), is_cold=caches_of(observations) == "cold")
        *earlier_runs, last_run = _group_by_run(observations)
        records: dict[Observation[Any], Any] = {}
        for run_observations in earlier_runs:
            with _restore_contents(prepared_launch):
                records |= _make_records(prepared_launch, run_observations, prepared_launch.run)
        records |= _make_records(prepared_launch, last_run, partial(_run_in_stream, prepared_launch))
        if len(observations) == 1:
            return records[observations[0]]
        return tuple(records[observation] for observation in observations)

    def read_graph(self, graph: Any) -> GraphRecord:
        """Return the nodes and edges of a captured graph."""
        return cast(GraphRecord, graph._make_record(self.provenance))

    def set_graph_node(self, graph: Any, node: GraphNode, template: Any) -> None:
        """Change the parameters of one node for later launches of a captured graph."""
        graph._set_node(node)

    def update_graph(self, graph: Any, other: Any) -> None:
        """Copy the parameters of the graph `other` to `graph`. Both graphs must have the same nodes and
        edges.
        """
        graph._update(other)

    def load_reader(self) -> LoadReader:
        """Raise an error, because a virtual GPU has no sensors that could measure its load."""
        raise NotSupportedError("A virtual GPU has no sensors, and its clock is never throttled.")

    def memory_reader(self) -> Callable[[], MemoryReading]:
        """Return a function that reads how much memory the current device and its memory pool use."""
        machine = self.machine
        device = self.machine.current_device

        def read() -> MemoryReading:
            allocator_pool = getattr(machine.allocator, "__self__", None)
            used_bytes = device.memory.used_bytes
            if isinstance(allocator_pool, MemoryAsyncPool):
                with cp.cuda.Device(device.id):
                    return MemoryReading(
                        allocator_pool.used_bytes(), allocator_pool.total_bytes(), None, used_bytes, 0
                    )
            memory_pools = (
                allocator_pool
                if isinstance(allocator_pool, MemoryPool)
                else machine.get_component(MemoryPool, machine=machine)
            )
            pool = memory_pools.device_pool(device.id)
            return MemoryReading(pool.used_bytes(), pool.total_bytes(), pool.get_limit(), used_bytes, 0)

        return read

    def host_ns(self) -> int:
        """Return the current time of the host's modelled clock, in ns."""
        return self.machine.clock.now_ns

    def prepared(self, launch: Launch) -> PreparedLaunch:
        """Check and prepare a kernel launch without running the kernel."""
        kernel = launch.kernel
        device = self.machine.current_device
        module = self._compile_kernel(kernel)
        module.warn()
        compiled_kernel = module.kernel(kernel.name, device)
        if not isinstance(kernel, RawKernel):
            return prepare_launch(device, compiled_kernel, launch)
        prepared_launch = prepare_launch(
            device, compiled_kernel, launch, kernel.get_max_dynamic_bytes(device)
        )
        return prepared_launch.as_cooperative() if kernel.enable_cooperative_groups else prepared_launch

    def _compile_kernel(self, kernel: Any) -> CompiledModule:
        launch_source = kernel_source(kernel)
        capability = self.device_info().compute_capability
        return compile_module(
            launch_source.code, launch_source.options, launch_source.name_expressions, capability
        )


def _group_by_run(observations: Sequence[Observation[Any]]) -> list[list[Observation[Any]]]:
    """Group observations that can share one run of the kernel; the last group is the largest."""
    run_groups: list[list[Observation[Any]]] = [
        [observation] for observation in observations if isinstance(observation, Hazards)
    ]
    observations_by_warp: dict[Any, list[Observation[Any]]] = {}
    for observation in observations:
        if isinstance(observation, Warp | Block | Accesses | Fragments):
            observations_by_warp.setdefault((observation.block_index, observation.warp), []).append(
                observation
            )
    run_groups += observations_by_warp.values()
    other_observations = [
        observation
        for observation in observations
        if not isinstance(observation, Hazards | Warp | Block | Accesses | Fragments)
    ]
    if other_observations and observations_by_warp:
        run_groups[-1] += other_observations
    elif other_observations:
        run_groups.append(other_observations)
    return run_groups


def _make_records(
    prepared_launch: PreparedLaunch,
    observations: Sequence[Observation[Any]],
    run_launch: Callable[[RunOptions], FinishedLaunch],
) -> dict[Observation[Any], Any]:
    """Return the records of a group of observations that share one run."""
    if isinstance(observations[0], Hazards):
        from virtualgpu.sanitizer import sanitize

        with _restore_contents(prepared_launch, observations[0].restore) as restore_arrays:
            return {observations[0]: sanitize(prepared_launch, observations[0], restore_arrays)}
    needs_cache_model = any(
        isinstance(observation, Counters) and observation.caches for observation in observations
    )
    cache_recorder = caching.start_cache_recorder(prepared_launch) if needs_cache_model else None
    trace_request = _make_trace_request(observations)
    needs_variables = any(
        isinstance(observation, Warp) or (isinstance(observation, Block) and observation.with_variables)
        for observation in observations
    )
    debug_build = (
        debugging.run_debug_build(prepared_launch, trace_request)
        if trace_request is not None and needs_variables
        else debugging.DebugBuild()
    )
    watched_launches: dict[Observation[Any], WatchedLaunch] = {
        observation: WatchedLaunch(prepared_launch, debug_build, observation.watch, observation.stop)
        for observation in observations
        if isinstance(observation, Warp | Block) and (observation.watch or observation.stop)
    }
    run_options = replace(
        prepared_launch.options,
        trace=trace_request,
        observer=cache_recorder.access_notes if cache_recorder is not None else None,
    )
    if any(isinstance(observation, Blocks) and observation.restore for observation in observations):
        with _restore_contents(prepared_launch):
            finished_launch = prepared_launch.run(run_options)
    else:
        finished_launch = run_launch(run_options)
    return {
        observation: _make_record(
            finished_launch, observation, cache_recorder, debug_build, watched_launches.get(observation)
        )
        for observation in observations
    }


def _make_trace_request(observations: Sequence[Observation[Any]]) -> TraceRequest | None:
    """Return the request for the trace of a warp or a block that observations need, or None."""
    from virtualgpu.engine import TraceRequest

    traced_observations = [
        observation
        for observation in observations
        if isinstance(observation, Warp | Block | Accesses | Fragments)
    ]
    if not traced_observations:
        return None
    return TraceRequest(
        traced_observations[0].block_index,
        traced_observations[0].warp,
        max(observation.max_steps for observation in traced_observations),
        is_whole_block=any(isinstance(observation, Block) for observation in traced_observations),
        with_steps=any(isinstance(observation, Warp | Block) for observation in traced_observations),
        with_accesses=any(isinstance(observation, Accesses) for observation in traced_observations),
        with_fragments=any(isinstance(observation, Fragments) for observation in traced_observations),
    )


def _make_record(
    finished_launch: FinishedLaunch,
    observation: Observation[Any],
    cache_recorder: caching.CacheRecorder | None,
    debug_build: debugging.DebugBuild,
    watched_launch: WatchedLaunch | None,
) -> Any:
    launch_result = finished_launch.result
    match observation:
        case Blocks():
            return finished_launch.trace
        case Costs():
            return finished_launch.costs
        case Counters(caches="warm" | "cold") if cache_recorder is not None:
            return caching.add_cache_counters(finished_launch, cache_recorder)
        case Counters():
            return launch_result.counters
        case Accesses():
            return launch_result.access_trace
        case Fragments():
            return launch_result.fragment_trace
        case Warp() | Block():
            block_trace = launch_result.block_trace
            warp_trace = launch_result.trace
            traces: tuple[WarpTrace, ...] = ()
            if isinstance(observation, Warp) and warp_trace is not None:
                traces = (warp_trace,)
            elif block_trace is not None:
                traces = block_trace.warps
            traces = debug_build.describe_warps(traces)
            traces = watched_launch.add_watched_values(traces) if watched_launch is not None else traces
            if isinstance(observation, Block) and block_trace:
                return replace(block_trace, warps=traces)
            return traces[0] if traces else None
    raise NotSupportedError(f"A virtual GPU cannot observe {observation!r}.")


def _run_in_stream(prepared_launch: PreparedLaunch, options: RunOptions) -> FinishedLaunch:
    """Enqueue a launch in its device's current stream and wait for it."""
    finished_launch = prepared_launch.submit(get_current_stream(prepared_launch.device.id), options)
    if finished_launch is None:
        raise NotSupportedError(
            "The current stream is capturing a graph, so the kernel does not run and cannot be observed. "
            "Call the kernel directly to add it to the graph, or end the capture first with end_capture()."
        )
    return finished_launch


@contextmanager
def _restore_contents(launch: PreparedLaunch, restore_at_end: bool = True) -> Iterator[Callable[[], None]]:
    """Restore the contents of every array argument at the end of a ``with`` block, also after a fault.

    Yields a function that restores the contents immediately. Without `restore_at_end`, only this function
    restores the contents; otherwise, the contents of L2 are restored at the end of the block, too.
    """
    memory = launch.device.memory
    saved_l2 = deepcopy(launch.device.l2)
    saved_contents = {address: memory.view(address, size).copy() for address, size in launch.arrays.items()}

    def restore() -> None:
        for address, old_contents in saved_contents.items():
            memory.view(address, old_contents.size)[:] = old_contents

    try:
        yield restore
    finally:
        if restore_at_end:
            restore()
            launch.device.l2 = saved_l2
