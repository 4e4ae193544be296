"""The virtual GPU's answers to the session: every method runs or compiles a kernel and returns records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._core.raw_kernel import RawKernel
from virtualgpu.cp.cuda.pointer import BaseMemory, MemoryPointer
from virtualgpu.cp.cuda.streams import get_current_stream
from virtualgpu.errors import NotSupportedError
from virtualgpu.launch.compiled import CompiledModule, compiled_module
from virtualgpu.launch.prepare import PreparedLaunch, prepare
from virtualgpu.model.machine import Machine, VirtualDevice
from virtualgpu.model.occupancy import occupancy
from virtualgpu.protocol import DEFAULT_BLOCK_STEPS, DEFAULT_MAX_STEPS, kernel_source
from virtualgpu.records import (
    BlockTrace,
    DeviceInfo,
    DeviceMetrics,
    Dim3,
    KernelCounters,
    KernelSource,
    KernelStats,
    LaunchTrace,
    Metric,
    Occupancy,
    Provenance,
    SanitizerReport,
    WarpTrace,
)

if TYPE_CHECKING:
    from virtualgpu.engine import LaunchResult, TraceRequest

NO_SENSORS = "virtual GPU: no sensors"
# What NVML reads on a real GPU, with its units.
_SENSORS = (
    ("GPU utilization", "%"),
    ("memory controller utilization", "%"),
    ("memory used", "MiB"),
    ("memory total", "MiB"),
    ("temperature", "°C"),
    ("power", "W"),
    ("power limit", "W"),
    ("SM clock", "MHz"),
    ("memory clock", "MHz"),
    ("clocks held back by", ""),
    ("fan", "%"),
    ("compute processes", ""),
    ("PCIe link", ""),
)


@dataclass(frozen=True, slots=True)
class Replay:
    """One run of a kernel over copies of NumPy arrays: the arrays afterwards, counts and times.

    ``outputs`` has one entry per argument: the array as the kernel left it, or the scalar itself.
    """

    outputs: tuple[Any, ...]
    counters: KernelCounters
    launch: LaunchTrace


class VirtualBackend:
    """`virtualgpu.protocol.Backend` on a virtual machine's current device.

    Parameters
    ----------
    machine
        The machine. Kernels may be `RawKernel`s over arrays of this machine, or a `KernelSource`
        over such arrays or over plain NumPy arrays. NumPy arrays are copied to the device for the
        run and the results discarded: so a learner's kernel is replayed beside a real GPU.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    @property
    def provenance(self) -> Provenance:
        return self.device_info().provenance

    def device_info(self) -> DeviceInfo:
        """Capability and limits of the machine's current device."""
        return self.machine.current_device.info

    def metrics(self) -> DeviceMetrics:
        """NVML's readings, all of them without a value: a virtual GPU has no sensors."""
        metrics = tuple(Metric(name, None, unit, NO_SENSORS) for name, unit in _SENSORS)
        return DeviceMetrics(self.provenance, self.machine.clock.now_ns, metrics)

    def kernel_stats(self, kernel: Any) -> KernelStats:
        """What NVRTC's ptxas decided for a kernel on this device's target."""
        module, name = self._compiled(kernel)
        return module.stats(module.symbol(name), self.device_info())

    def occupancy(self, kernel: Any, block_threads: int, shared_bytes: int = 0) -> Occupancy:
        """Theoretical occupancy of a kernel, with ptxas's own register count."""
        stats = self.kernel_stats(kernel)
        return occupancy(
            self.device_info(),
            block_threads,
            stats.registers_per_thread,
            stats.static_shared_bytes + shared_bytes,
        )

    def trace_launch(
        self,
        kernel: Any,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Any],
        shared_bytes: int = 0,
        restore: bool = False,
    ) -> LaunchTrace:
        """Execute the kernel and model where and when each block ran.

        With `restore` every array argument gets its contents back, and the modelled clock stays.
        """
        with self._launch(kernel, grid, block, args, shared_bytes) as launch:
            if restore:
                with _restored(launch):
                    return launch.launch_trace(launch.run())
            return launch.launch_trace(self._run(launch))

    def trace_warp(
        self,
        kernel: Any,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Any],
        block_index: Dim3 = (0, 0, 0),
        warp_index: int = 0,
        shared_bytes: int = 0,
        max_steps: int = DEFAULT_MAX_STEPS,
    ) -> WarpTrace:
        """Execute the kernel and record every step of one warp."""
        from virtualgpu.engine import TraceRequest

        request = TraceRequest(block_index, warp_index, max_steps)
        with self._launch(kernel, grid, block, args, shared_bytes) as launch:
            trace = self._run(launch, request).trace
        assert trace is not None
        return trace

    def trace_block(
        self,
        kernel: Any,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Any],
        block_index: Dim3 = (0, 0, 0),
        shared_bytes: int = 0,
        max_steps: int = DEFAULT_BLOCK_STEPS,
    ) -> BlockTrace:
        """Execute the kernel and record every step of all warps of one block."""
        from virtualgpu.engine import TraceRequest

        request = TraceRequest(block_index, 0, max_steps, whole_block=True)
        with self._launch(kernel, grid, block, args, shared_bytes) as launch:
            trace = self._run(launch, request).block_trace
        assert trace is not None
        return trace

    def count(
        self, kernel: Any, grid: Dim3, block: Dim3, args: Sequence[Any], shared_bytes: int = 0
    ) -> KernelCounters:
        """Execute the kernel and count its instructions, requests, sectors and branches."""
        with self._launch(kernel, grid, block, args, shared_bytes) as launch:
            counters = self._run(launch).counters
        assert counters is not None
        return counters

    def sanitize(
        self,
        kernel: Any,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Any],
        shared_bytes: int = 0,
        tools: Sequence[str] = ("memory", "race", "init", "sync"),
        block_order: str = "in order",
        seed: int = 0,
        nan: bool = False,
    ) -> SanitizerReport:
        """Execute the kernel under checks and put back the contents of every array argument.

        See `virtualgpu.sanitizer.sanitize`.
        """
        from virtualgpu.sanitizer import sanitize

        with self._launch(kernel, grid, block, args, shared_bytes) as launch, _restored(launch):
            return sanitize(launch, tools, block_order, seed, nan)

    def check(self, kernel: Any, grid: Dim3, block: Dim3, args: Sequence[Any], shared_bytes: int = 0) -> None:
        """Raise what a launch would raise before its first thread, and run nothing."""
        with self._launch(kernel, grid, block, args, shared_bytes):
            pass

    def replay(
        self, source: KernelSource, grid: Dim3, block: Dim3, args: Sequence[Any], shared_bytes: int = 0
    ) -> Replay:
        """Run a kernel once over copies of NumPy arrays and return all there is to know.

        Parameters
        ----------
        source
            The kernel.
        grid, block
            Launch shape.
        args
            NumPy arrays (one dimension or more: pointers) and scalars.
        shared_bytes
            Dynamic shared memory per block.
        """
        with (
            self._copies(args) as device_args,
            self._launch(source, grid, block, device_args, shared_bytes) as launch,
        ):
            result = launch.run()
            outputs = tuple(np.array(arg._host) if isinstance(arg, ndarray) else arg for arg in device_args)
            assert result.counters is not None
            return Replay(outputs, result.counters, launch.launch_trace(result))

    def _compiled(self, kernel: Any) -> tuple[CompiledModule, str]:
        capability = self.device_info().compute_capability
        if isinstance(kernel, RawKernel):
            return compiled_module(
                kernel.code, kernel.options, kernel.name_expressions, capability
            ), kernel.name
        source = kernel_source(kernel)
        expressions = source.name_expressions
        if "<" in source.name and source.name not in expressions:
            expressions = (*expressions, source.name)
        return compiled_module(source.code, source.options, expressions, capability), source.name

    @contextmanager
    def _launch(
        self, kernel: Any, grid: Dim3, block: Dim3, args: Sequence[Any], shared_bytes: int
    ) -> Iterator[PreparedLaunch]:
        """A checked launch; NumPy arrays of a `KernelSource` are on the device while it lasts."""
        module, name = self._compiled(kernel)
        device = self.machine.current_device
        own = isinstance(kernel, RawKernel)
        with self._copies(() if own else args) as copies:
            yield prepare(
                device,
                module,
                name,
                tuple(grid),
                tuple(block),
                args if own else copies,
                shared_bytes,
                kernel.max_dynamic_on(device) if own else None,
                own and kernel.enable_cooperative_groups,
            )

    def _run(self, launch: PreparedLaunch, trace: TraceRequest | None = None) -> LaunchResult:
        """Execute, and let the launch take its time on the device's current stream."""
        results: list[LaunchResult] = []

        def run() -> float:
            results.append(launch.run(replace(launch.options, trace=trace)))
            return launch.duration_ns(results[-1])

        get_current_stream(launch.device.id).enqueue(
            "CONCURRENT_KERNEL",
            launch.symbol,
            run,
            device=launch.device,
            sm_share=launch.sm_share(),
            grid=launch.grid,
            block=launch.block,
            shared_bytes=launch.shared_bytes,
        )
        if not results:
            raise NotSupportedError(
                "The current stream captures a graph, in which nothing runs that could be observed: call the "
                "kernel itself, or end_capture() first."
            )
        return results[-1]

    @contextmanager
    def _copies(self, args: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """`args` with every NumPy array of one dimension or more copied to the device for a while."""
        device = self.machine.current_device
        copies: dict[int, ndarray] = {}
        passed: list[Any] = []
        try:
            for arg in args:
                if isinstance(arg, np.ndarray) and arg.ndim:
                    if id(arg) not in copies:
                        copies[id(arg)] = _copy_to(device, arg)
                    passed.append(copies[id(arg)])
                else:
                    passed.append(arg)
            yield tuple(passed)
        finally:
            for copy in copies.values():
                if copy.nbytes:
                    device.memory.untrack(copy.data.ptr)
                    device.memory.free(copy.data.ptr)


def _copy_to(device: VirtualDevice, array: npt.NDArray[Any]) -> ndarray:
    address = device.memory.malloc(array.nbytes)
    if array.nbytes:
        device.memory.track(address, array.nbytes, f"copy of a {array.dtype} array of shape {array.shape}")
    copy = ndarray(array.shape, array.dtype, MemoryPointer(BaseMemory(address, array.nbytes, device), 0))
    copy._host[...] = array
    return copy


@contextmanager
def _restored(launch: PreparedLaunch) -> Iterator[None]:
    """Put back the contents of every array argument, also after a fault."""
    memory = launch.device.memory
    saved = {address: memory.view(address, size).copy() for address, size in launch.packed.arrays.items()}
    try:
        yield
    finally:
        for address, contents in saved.items():
            memory.view(address, contents.size)[:] = contents
