"""A real GPU behind the `Backend` protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import cupy
from cupy.cuda import driver

from gpulab.real import blocks, warps
from gpulab.real.device import device_info, device_name, open_nvml
from gpulab.real.modules import Probe, compile_ptx, load_probe, raw_kernel, source_of
from virtualgpu.compile import instrument
from virtualgpu.errors import NotSupportedError
from virtualgpu.model.occupancy import occupancy
from virtualgpu.protocol import DEFAULT_BLOCK_STEPS, DEFAULT_MAX_STEPS
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
    WarpTrace,
)

Instrument = Callable[[str, str], instrument.Instrumented]


class CudaBackend:
    """One CUDA device: measures with the learner's own kernels.

    Parameters
    ----------
    index
        CUDA's device number; None is CuPy's current device.
    """

    def __init__(self, index: int | None = None) -> None:
        self._device = cupy.cuda.Device(index)
        self._nvml = open_nvml(self._device)
        self._info: DeviceInfo | None = None
        self._provenance = Provenance("measured", device_name(self._device))
        self._probes: dict[tuple[KernelSource, Instrument], Probe] = {}

    @property
    def provenance(self) -> Provenance:
        return self._provenance

    def device_info(self) -> DeviceInfo:
        if self._info is None:
            self._info = device_info(self._device, self._nvml)
        return self._info

    def metrics(self) -> DeviceMetrics:
        if self._nvml is None:
            why = "NVML does not answer on this machine"
            return DeviceMetrics(self._provenance, 0, (Metric("NVML", None, why=why),))
        return self._nvml.metrics(self._provenance)

    def kernel_stats(self, kernel: Any) -> KernelStats:
        with self._device:
            kernel = raw_kernel(kernel)
            return KernelStats(
                provenance=self._provenance,
                name=kernel.name,
                target=f"sm_{self._device.compute_capability}",
                registers_per_thread=kernel.num_regs,
                static_shared_bytes=kernel.shared_size_bytes,
                local_bytes=kernel.local_size_bytes,
                constant_bytes=kernel.const_size_bytes,
                max_threads_per_block=kernel.max_threads_per_block,
            )

    def occupancy(self, kernel: Any, block_threads: int, shared_bytes: int = 0) -> Occupancy:
        """Ask the driver how many blocks fit on an SM; the limits are those of its calculator."""
        with self._device:
            kernel = raw_kernel(kernel)
            return self._occupancy(
                kernel.kernel.ptr, kernel.num_regs, kernel.shared_size_bytes, block_threads, shared_bytes
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
        threads = block[0] * block[1] * block[2]
        with self._device, _restored(args if restore else ()):
            kernel = raw_kernel(kernel)
            probe = self._probe(kernel, instrument.trace_blocks)
            static = kernel.shared_size_bytes
            fit = self._occupancy(probe.function.ptr, probe.registers, static, threads, shared_bytes)
            return blocks.trace_blocks(
                probe,
                kernel,
                grid,
                block,
                args,
                shared_bytes,
                provenance=self._provenance,
                sm_count=self.device_info().sm_count,
                occupancy=fit,
                note=self._probe_cost(kernel, fit, threads, shared_bytes),
            )

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
        with self._device:
            kernel = raw_kernel(kernel)
            return warps.trace_warp(
                self._probe(kernel, instrument.trace_warp),
                kernel,
                grid,
                block,
                args,
                block_index,
                warp_index,
                shared_bytes,
                max_steps,
                provenance=self._provenance,
            )

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
        """Always raise: a GPU does not tell a running program its registers and shared memory."""
        raise NotSupportedError(
            "A GPU does not tell its registers and shared memory step by step. gl.warps replays the launch "
            "on the virtual GPU instead, if it is small enough; choose a smaller grid."
        )

    def count(
        self, kernel: Any, grid: Dim3, block: Dim3, args: Sequence[Any], shared_bytes: int = 0
    ) -> KernelCounters:
        """Always raise: a CUDA program cannot read its own hardware counters."""
        raise NotSupportedError(
            "A GPU does not tell a running program its counters. gl.count replays the launch on the virtual "
            "GPU instead; for the hardware's own numbers run Nsight Compute (ncu)."
        )

    def ptx(self, kernel: Any) -> str:
        """The kernel's PTX for this device, before probes are put in."""
        with self._device:
            return compile_ptx(source_of(raw_kernel(kernel)), self._device.compute_capability)

    def _probe(self, kernel: Any, how: Instrument) -> Probe:
        source = source_of(kernel)
        if (source, how) not in self._probes:
            self._probes[source, how] = load_probe(self.ptx(kernel), source.name, how)
        probe = self._probes[source, how]
        probe.allow_shared(kernel)
        return probe

    def _occupancy(
        self, function: int, registers: int, static_shared: int, block_threads: int, shared_bytes: int
    ) -> Occupancy:
        rules = occupancy(
            self.device_info(),
            block_threads,
            registers,
            static_shared + shared_bytes,
            provenance=self._provenance,
        )
        measured = int(
            driver.occupancyMaxActiveBlocksPerMultiprocessor(function, block_threads, shared_bytes)
        )
        if measured == rules.blocks_per_sm:
            return rules
        # The driver knows this kernel better than the rules do, such as a launch bound.
        limits = {**rules.blocks_by_limit, "driver": measured}
        return Occupancy(
            provenance=self._provenance,
            block_threads=block_threads,
            registers_per_thread=registers,
            shared_bytes=static_shared + shared_bytes,
            blocks_per_sm=measured,
            warps_per_sm=measured * -(-block_threads // 32),
            max_warps_per_sm=rules.max_warps_per_sm,
            blocks_by_limit=limits,
            limiters=tuple(name for name, value in limits.items() if value == measured),
        )

    def _probe_cost(self, kernel: Any, probed: Occupancy, threads: int, shared_bytes: int) -> str:
        """What the probes changed, in words; empty if the same number of blocks fits."""
        plain = self.occupancy(kernel, threads, shared_bytes)
        if plain.blocks_per_sm == probed.blocks_per_sm:
            return ""
        return (
            f"the probes take registers ({plain.registers_per_thread} to {probed.registers_per_thread} a "
            f"thread), so that {probed.blocks_per_sm} blocks fit on an SM instead of {plain.blocks_per_sm}"
        )


@contextmanager
def _restored(args: Sequence[Any]) -> Iterator[None]:
    """Put back the contents of every array among `args` at the end."""
    saved = [(array, array.copy()) for array in args if isinstance(array, cupy.ndarray)]
    try:
        yield
    finally:
        for array, copy in saved:
            array[...] = copy
