"""What the session asks of a device, real or virtual. `probes` and `virtual` each answer it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from virtualgpu.records import (
    BlockTrace,
    DeviceInfo,
    DeviceMetrics,
    Dim3,
    KernelCounters,
    KernelSource,
    KernelStats,
    LaunchTrace,
    Occupancy,
    Provenance,
    WarpTrace,
)

DEFAULT_MAX_STEPS = 20_000
DEFAULT_BLOCK_STEPS = 60_000


class Backend(Protocol):
    """One device's answers, all of them records."""

    @property
    def provenance(self) -> Provenance: ...

    def device_info(self) -> DeviceInfo: ...

    def metrics(self) -> DeviceMetrics: ...

    def kernel_stats(self, kernel: Any) -> KernelStats: ...

    def occupancy(self, kernel: Any, block_threads: int, shared_bytes: int = 0) -> Occupancy: ...

    def trace_launch(
        self,
        kernel: Any,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Any],
        shared_bytes: int = 0,
        restore: bool = False,
    ) -> LaunchTrace:
        """Run the kernel and tell where and when each block ran. ``restore`` puts back the
        contents of every array argument afterwards, so that a view can run it again."""
        ...

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
    ) -> WarpTrace: ...

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
        """Run the kernel and record every step of all warps of one block; `max_steps` bounds them all
        together. Only a virtual GPU can."""
        ...

    def count(
        self, kernel: Any, grid: Dim3, block: Dim3, args: Sequence[Any], shared_bytes: int = 0
    ) -> KernelCounters: ...


def kernel_source(kernel: Any) -> KernelSource:
    """Read name, code and options off a CuPy or virtual ``RawKernel``.

    Raises
    ------
    TypeError
        If `kernel` carries no CUDA C++ source.
    """
    if isinstance(kernel, KernelSource):
        return kernel
    code = getattr(kernel, "code", None)
    name = getattr(kernel, "name", None)
    if not isinstance(code, str) or not isinstance(name, str):
        raise TypeError(
            f"{kernel!r} carries no CUDA C++ source; pass a cp.RawKernel or a function of a cp.RawModule."
        )
    return KernelSource(name, code, tuple(getattr(kernel, "options", ()) or ()))
