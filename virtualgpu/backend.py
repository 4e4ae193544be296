"""The virtual GPU's answers to the session: every method runs or compiles a kernel and returns records."""

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
from virtualgpu.launch.compiled import CompiledModule, compiled_module, fit
from virtualgpu.launch.launch import Launch, kernel_source
from virtualgpu.launch.prepare import FinishedLaunch, PreparedLaunch, prepare
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
)
from virtualgpu.records.device.attributes import READINGS, driver_limits
from virtualgpu.records.memory import MemoryReading

if TYPE_CHECKING:
    from virtualgpu.engine import RunOptions, TraceRequest

R = TypeVar("R")

NO_SENSORS = "virtual GPU: no sensors"


class VirtualBackend:
    """`virtualgpu.protocol.Backend` on a virtual machine's current device.

    Parameters
    ----------
    machine
        The machine. Kernels may be `RawKernel`s, or `KernelSource`s that come from elsewhere.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    @property
    def cp(self) -> Any:
        """The array module."""
        return cp

    @property
    def provenance(self) -> Provenance:
        return self.device_info().as_virtual

    def device_info(self) -> DeviceInfo:
        """Capability and limits of the machine's current device."""
        return self.machine.current_device.info

    def metrics(self) -> DeviceMetrics:
        """NVML's readings, all of them without a value: a virtual GPU has no sensors."""
        metrics = tuple(Metric(name, None, unit, NO_SENSORS) for name, unit in READINGS)
        return DeviceMetrics(self.provenance, self.machine.clock.now_ns, metrics)

    def setup(self) -> DeviceMetrics:
        """The driver's limits."""
        return DeviceMetrics(self.provenance, self.machine.clock.now_ns, driver_limits(cp.cuda.runtime))

    def kernel_stats(self, kernel: Any) -> KernelStats:
        """What NVRTC's ptxas decided for a kernel on this device's target."""
        module = self._compiled(kernel)
        return module.stats(module.symbol(kernel.name), self.device_info())

    def occupancy(self, kernel: Any, block_threads: int, shared_bytes: int = 0) -> Occupancy:
        """Theoretical occupancy of a kernel, with ptxas's own register count where it is known."""
        module = self._compiled(kernel)
        found = module.resources[module.symbol(kernel.name)]
        return fit(self.device_info(), found, block_threads, found.static_shared_bytes + shared_bytes)

    def timeline_recorder(self) -> Recording:
        """A recorder of what all devices of the machine run and its host calls."""
        return Recording(self.machine)

    def port_recorder(self) -> PortRecorder:
        """What records the traffic between the devices."""
        return PortRecorder(self.machine)

    def step_ns(
        self, messages: Sequence[tuple[int, int, int, bool]], sums: Sequence[tuple[int, int]]
    ) -> tuple[float, float]:
        """Modelled duration of a step of a schedule between the devices: its copies, and all of it."""
        return cost.step_ns([device.info for device in self.machine.devices], messages, sums)

    def stream_watcher(self) -> MachineObserver:
        """Sees all work that the program gives to the machine's devices: its order, and what it touches."""
        from virtualgpu.sanitizer.touched import run_watched

        return MachineObserver(self.machine, run_watched)

    @overload
    def observe(self, launch: Launch, what: Observation[R], /) -> R: ...
    @overload
    def observe(self, launch: Launch, /, *what: Observation[Any]) -> tuple[Any, ...]: ...
    def observe(self, launch: Launch, /, *what: Observation[Any]) -> Any:
        """Execute the kernel once and tell what was asked.

        Checks for hazards take a run of their own, and so does each further warp or block. Where arrays get
        their contents back (``Blocks(restore=True)``, `Hazards`), the modelled clock and L2's contents stay.
        """
        prepared = replace(self.prepared(launch), cold=caches_of(what) == "cold")
        *before, last = _runs(what)
        found: dict[Observation[Any], Any] = {}
        for run in before:
            with _restored(prepared):
                found |= _observed(prepared, run, prepared.run)
        found |= _observed(prepared, last, partial(_submitted, prepared))
        return tuple(map(found.__getitem__, what)) if len(what) > 1 else found[what[0]]

    def graph(self, graph: Any) -> GraphRecord:
        """Nodes and edges of a captured graph."""
        return cast(GraphRecord, graph._record(self.provenance))

    def set_graph_node(self, graph: Any, node: GraphNode, template: Any) -> None:
        """Let the next launches of a graph run one node with the record's parameters."""
        graph._set_node(node)

    def update_graph(self, graph: Any, other: Any) -> None:
        """Give a graph the parameters of another one with the same nodes and edges."""
        graph._update(other)

    def load_reader(self) -> LoadReader:
        """Not here: a virtual GPU has no sensors."""
        raise NotSupportedError("A virtual GPU has no sensors, and no clock that could be throttled.")

    def memory_reader(self) -> Callable[[], MemoryReading]:
        """Reads the memory of the current device and of the pool that allocations come from."""
        machine = self.machine
        device = self.machine.current_device

        def read() -> MemoryReading:
            own = getattr(machine.allocator, "__self__", None)
            taken = device.memory.used_bytes
            if isinstance(own, MemoryAsyncPool):
                with cp.cuda.Device(device.id):
                    return MemoryReading(own.used_bytes(), own.total_bytes(), None, taken, 0)
            pools = own if isinstance(own, MemoryPool) else machine.own(MemoryPool, machine=machine)
            pool = pools.device_pool(device.id)
            return MemoryReading(pool.used_bytes(), pool.total_bytes(), pool.get_limit(), taken, 0)

        return read

    def host_ns(self) -> int:
        """The host's modelled clock."""
        return self.machine.clock.now_ns

    def prepared(self, launch: Launch) -> PreparedLaunch:
        """Raise what a launch would raise before its first thread, and run nothing."""
        kernel = launch.kernel
        device = self.machine.current_device
        module = self._compiled(kernel)
        if not isinstance(kernel, RawKernel):
            return prepare(device, module, launch)
        prepared = prepare(device, module, launch, kernel.max_dynamic_on(device))
        return prepared.as_cooperative() if kernel.enable_cooperative_groups else prepared

    def _compiled(self, kernel: Any) -> CompiledModule:
        source = kernel_source(kernel)
        capability = self.device_info().compute_capability
        return compiled_module(source.code, source.options, source.name_expressions, capability)


def _runs(what: Sequence[Observation[Any]]) -> list[list[Observation[Any]]]:
    """Observations by the run that they share; the last one shows most."""
    runs: list[list[Observation[Any]]] = [[each] for each in what if isinstance(each, Hazards)]
    places: dict[Any, list[Observation[Any]]] = {}
    for each in what:
        if isinstance(each, Warp | Block | Accesses):
            places.setdefault((each.block_index, each.warp), []).append(each)
    runs += places.values()
    anywhere = [each for each in what if not isinstance(each, Hazards | Warp | Block | Accesses)]
    if anywhere and places:
        runs[-1] += anywhere
    elif anywhere:
        runs.append(anywhere)
    return runs


def _observed(
    prepared: PreparedLaunch, what: Sequence[Observation[Any]], run: Callable[[RunOptions], FinishedLaunch]
) -> dict[Observation[Any], Any]:
    """The records of observations that share one run."""
    if isinstance(what[0], Hazards):
        from virtualgpu.sanitizer import sanitize

        with _restored(prepared, what[0].restore) as restore:
            return {what[0]: sanitize(prepared, what[0], restore)}
    modelled = any(isinstance(each, Counters) and each.caches for each in what)
    watch = caching.watch_caches(prepared) if modelled else None
    request = _traced(what)
    debugged = debugging.run_debug_build(prepared, request) if request is not None and request.steps else None
    seen: dict[Observation[Any], WatchedLaunch] = {
        each: WatchedLaunch(prepared, debugged, each.watch, each.stop)
        for each in what
        if debugged is not None and isinstance(each, Warp | Block) and (each.watch or each.stop)
    }
    options = replace(prepared.options, trace=request, observer=watch.notes if watch is not None else None)
    if any(isinstance(each, Blocks) and each.restore for each in what):
        with _restored(prepared):
            done = prepared.run(options)
    else:
        done = run(options)
    return {each: _record(done, each, watch, debugged, seen.get(each)) for each in what}


def _traced(what: Sequence[Observation[Any]]) -> TraceRequest | None:
    """What of observations of one warp, or of its block, is to be traced."""
    from virtualgpu.engine import TraceRequest

    traced = [each for each in what if isinstance(each, Warp | Block | Accesses)]
    if not traced:
        return None
    return TraceRequest(
        traced[0].block_index,
        traced[0].warp,
        max(each.max_steps for each in traced),
        whole_block=any(isinstance(each, Block) for each in traced),
        steps=any(isinstance(each, Warp | Block) for each in traced),
        accesses=any(isinstance(each, Accesses) for each in traced),
    )


def _record(
    done: FinishedLaunch,
    what: Observation[Any],
    watch: caching.CacheWatch | None,
    debugged: debugging.Debugged | None,
    watching: WatchedLaunch | None,
) -> Any:
    result = done.result
    match what:
        case Blocks():
            return done.trace
        case Costs():
            return done.costs
        case Counters(caches="warm" | "cold") if watch is not None:
            return caching.with_caches(done, watch)
        case Counters():
            return result.counters
        case Accesses():
            return result.access_trace
        case Warp() | Block() if debugged is not None:
            block = result.block_trace
            one = result.trace
            traced = (one,) if isinstance(what, Warp) and one is not None else block.warps if block else ()
            variables = debugged.name(traced)
            traced = tuple(replace(each, variables=variables) for each in traced)
            traced = watching.of(traced) if watching is not None else traced
            return (
                replace(block, warps=traced)
                if isinstance(what, Block) and block
                else next(iter(traced), None)
            )
    raise NotSupportedError(f"A virtual GPU cannot observe {what!r}.")


def _submitted(prepared: PreparedLaunch, options: RunOptions) -> FinishedLaunch:
    """Give a launch to its device's current stream and wait for it."""
    done = prepared.submit(get_current_stream(prepared.device.id), options)
    if done is None:
        raise NotSupportedError(
            "The current stream captures a graph, in which nothing runs that could be observed: call the "
            "kernel itself, or end_capture() first."
        )
    return done


@contextmanager
def _restored(launch: PreparedLaunch, afterwards: bool = True) -> Iterator[Callable[[], None]]:
    """Put back the contents of every array argument, also after a fault; yields what does so at once.

    If not `afterwards`, that is the only time; else L2 holds again what it held, too.
    """
    memory = launch.device.memory
    l2 = deepcopy(launch.device.l2)
    saved = {address: memory.view(address, size).copy() for address, size in launch.arrays.items()}

    def restore() -> None:
        for address, contents in saved.items():
            memory.view(address, contents.size)[:] = contents

    try:
        yield restore
    finally:
        if afterwards:
            restore()
            launch.device.l2 = l2
