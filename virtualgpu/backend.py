"""The virtual GPU's answers to the session: every method runs or compiles a kernel and returns records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from virtualgpu import cp
from virtualgpu.cp._core.raw_kernel import RawKernel
from virtualgpu.cp.cuda.memory import MemoryAsyncPool, MemoryPool
from virtualgpu.cp.cuda.stream import get_current_stream
from virtualgpu.errors import NotSupportedError
from virtualgpu.launch import caching, debugging
from virtualgpu.launch.compiled import CompiledModule, compiled_module
from virtualgpu.launch.launch import Launch, kernel_source
from virtualgpu.launch.prepare import FinishedLaunch, PreparedLaunch, prepare
from virtualgpu.model.machine import Machine
from virtualgpu.model.occupancy import occupancy
from virtualgpu.model.recording.checking import Watching
from virtualgpu.model.recording.timeline import Recording
from virtualgpu.protocol import Accesses, Block, Blocks, Counters, Hazards, Observation, Warp
from virtualgpu.records import (
    DeviceInfo,
    DeviceMetrics,
    GraphNode,
    GraphRecord,
    KernelStats,
    Metric,
    NotAvailable,
    Occupancy,
    Provenance,
)
from virtualgpu.records.device_attributes import READINGS
from virtualgpu.records.memory import MemoryReading

if TYPE_CHECKING:
    from virtualgpu.engine import Observer, TraceRequest

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

    def kernel_stats(self, kernel: Any) -> KernelStats:
        """What NVRTC's ptxas decided for a kernel on this device's target."""
        module = self._compiled(kernel)
        return module.stats(module.symbol(kernel.name), self.device_info())

    def occupancy(self, kernel: Any, block_threads: int, shared_bytes: int = 0) -> Occupancy:
        """Theoretical occupancy of a kernel, with ptxas's own register count."""
        stats = self.kernel_stats(kernel)
        return occupancy(
            self.device_info(),
            block_threads,
            stats.registers_per_thread,
            stats.static_shared_bytes + shared_bytes,
        )

    def timeline_recorder(self) -> Recording:
        """A recorder of what all devices of the machine run and its host calls."""
        return Recording(self.machine)

    def stream_watcher(self) -> Watching:
        """Sees what the program gives all devices of the machine, in which order, and what that touches."""
        from virtualgpu.sanitizer.touched import run_watched

        return Watching(self.machine, run_watched)

    def observe(self, launch: Launch, what: Observation[R]) -> R:
        """Execute the kernel and tell what was asked.

        Where arrays get their contents back (``Blocks(restore=True)``, `Hazards`), the modelled clock stays.
        """
        # Each kind of observation names its record, which `_record` gives.
        return cast(R, self._record(self.prepared(launch), what))

    def _record(self, prepared: PreparedLaunch, what: Observation[Any]) -> Any:
        from virtualgpu.engine import TraceRequest

        match what:
            case Hazards():
                from virtualgpu.sanitizer import sanitize

                with _restored(prepared) as restore:
                    return sanitize(prepared, what, restore)
            case Blocks(restore=True):
                with _restored(prepared):
                    return prepared.run().trace
            case Blocks():
                return _submitted(prepared).trace
            case Counters(caches=""):
                return _submitted(prepared).result.counters
            case Counters():
                watch = caching.watch_caches(prepared, what.caches or "cold")
                return caching.with_caches(_submitted(prepared, observer=watch.notes), watch)
            case Accesses():
                request = TraceRequest(what.block_index, what.warp, what.max_steps, accesses=True)
                return _submitted(prepared, request).result.access_trace
            case Warp():
                request = TraceRequest(what.block_index, what.warp, what.max_steps)
                naming = debugging.beside(prepared, request)
                warp = _submitted(prepared, request).result.trace
                return replace(warp, variables=naming((warp,))) if warp is not None else None
            case Block():
                request = TraceRequest(what.block_index, what.warp, what.max_steps, whole_block=True)
                naming = debugging.beside(prepared, request)
                block = _submitted(prepared, request).result.block_trace
                assert block is not None
                variables = naming(block.warps)
                return replace(block, warps=tuple(replace(each, variables=variables) for each in block.warps))
        raise NotSupportedError(f"A virtual GPU cannot observe {what!r}.")

    def graph(self, graph: Any) -> GraphRecord:
        """Nodes and edges of a captured graph."""
        return cast(GraphRecord, graph._record(self.provenance))

    def set_graph_node(self, graph: Any, node: GraphNode, template: Any) -> None:
        """Let the next launches of a graph run one node with the record's parameters."""
        graph._set_node(node)

    def update_graph(self, graph: Any, other: Any) -> None:
        """Give a graph the parameters of another one with the same nodes and edges."""
        graph._update(other)

    def graph_loop(
        self, graph: Any, flag: Any, turns: Any, most: int
    ) -> Callable[[Any], None] | NotAvailable:
        """A virtual GPU's graphs have no conditional nodes."""
        return NotAvailable("Conditional nodes", "the virtual GPU has none")

    def memory_reader(self) -> Callable[[], MemoryReading]:
        """Reads the memory of the current device and of the pool that allocations come from."""
        machine, device = self.machine, self.machine.current_device

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
        kernel, device = launch.kernel, self.machine.current_device
        module = self._compiled(kernel)
        if not isinstance(kernel, RawKernel):
            return prepare(device, module, launch)
        prepared = prepare(device, module, launch, kernel.max_dynamic_on(device))
        return prepared.as_cooperative() if kernel.enable_cooperative_groups else prepared

    def _compiled(self, kernel: Any) -> CompiledModule:
        source = kernel_source(kernel)
        capability = self.device_info().compute_capability
        return compiled_module(source.code, source.options, source.name_expressions, capability)


def _submitted(
    prepared: PreparedLaunch, trace: TraceRequest | None = None, observer: Observer | None = None
) -> FinishedLaunch:
    """Give a launch to its device's current stream and wait for it."""
    options = replace(prepared.options, trace=trace, observer=observer)
    done = prepared.submit(get_current_stream(prepared.device.id), options)
    if done is None:
        raise NotSupportedError(
            "The current stream captures a graph, in which nothing runs that could be observed: call the "
            "kernel itself, or end_capture() first."
        )
    return done


@contextmanager
def _restored(launch: PreparedLaunch) -> Iterator[Callable[[], None]]:
    """Put back the contents of every array argument, also after a fault; yields what does so at once."""
    memory = launch.device.memory
    saved = {address: memory.view(address, size).copy() for address, size in launch.arrays.items()}

    def restore() -> None:
        for address, contents in saved.items():
            memory.view(address, contents.size)[:] = contents

    try:
        yield restore
    finally:
        restore()
