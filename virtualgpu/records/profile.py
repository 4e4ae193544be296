"""Totals of a timeline by name: kernels, copies, waits and ranges, with the terms of PyTorch's profiler."""

from __future__ import annotations

from dataclasses import dataclass

from virtualgpu.records.kernel import Dim3
from virtualgpu.records.origin import Provenance
from virtualgpu.records.timeline import CopyKind, SourceLine, TimelineMethod


@dataclass(frozen=True, slots=True)
class ProfiledLine:
    """A line of the program, with the operations that it submitted and their time on the device."""

    source: SourceLine
    keys: tuple[str, ...]
    count: int
    device_time_total_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledKernel:
    """The totals of all launches of one kernel.

    The names ``key``, ``count``, ``device_time_total`` and ``device_time`` (the mean) are PyTorch's names,
    but PyTorch uses microseconds. ``grid`` and ``block`` are None if launches differ. ``occupancy`` is the
    theoretical one, 0 to 1, as a mean over the device time. ``moved_bytes`` (between SMs and L2) and ``flop``
    are None if they were not counted.
    """

    key: str
    count: int
    device_time_total_ns: int
    grid: Dim3 | None = None
    block: Dim3 | None = None
    occupancy: float | None = None
    moved_bytes: int | None = None
    flop: int | None = None

    @property
    def device_time_ns(self) -> float:
        """The mean time of a launch of the kernel."""
        return self.device_time_total_ns / self.count

    @property
    def gb_per_s(self) -> float | None:
        """The memory throughput of the kernel in GB/s."""
        return _divide_by_time(self.moved_bytes, self.device_time_total_ns)

    @property
    def gflop_per_s(self) -> float | None:
        """The arithmetic throughput of the kernel in GFLOP/s."""
        return _divide_by_time(self.flop, self.device_time_total_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledCopy:
    """The totals of all copies in one direction, or of all memsets, for one type of host memory."""

    way: CopyKind | None
    pinned: bool | None
    count: int
    size_bytes: int
    device_time_total_ns: int

    @property
    def gb_per_s(self) -> float | None:
        """The throughput of the copies in GB/s."""
        return _divide_by_time(self.size_bytes, self.device_time_total_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledWait:
    """The totals of the host's waits in one CUDA function on one source line. The field ``hidden`` is true
    for implicit waits.
    """

    key: str
    source: SourceLine | None
    hidden: bool
    count: int
    cpu_time_total_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledRange:
    """The totals of all NVTX ranges with the same name.

    The field ``cpu_time_total_ns`` is the host's time in these ranges. ``device_time_total_ns`` is that of
    the operations whose calls were made in them, by the same thread, each once; None if calls were not
    recorded.
    """

    key: str
    count: int
    cpu_time_total_ns: int
    device_time_total_ns: int | None
    operations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareCounters:
    """The hardware counters of a real GPU for all launches of one kernel. A counter that is missing is None.

    ``sectors`` are those of 32 bytes that loads and stores of global memory request from L1, ``dram_bytes``
    the bytes that DRAM read and wrote, ``flop`` operations outside the tensor cores. Hit rates are 0 to 1.
    """

    key: str
    count: int
    sectors: int | None
    dram_bytes: int | None
    warp_instructions: int | None
    flop: int | None
    l1_hit_rate: float | None
    l2_hit_rate: float | None
    time_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The totals of a program between two moments. In each list, the longest item is first.

    ``busy_ns`` is the time in which any operation ran. ``peak_bytes`` is the largest number of bytes in use
    of the pool, ``before_bytes`` that at the beginning; None if not recorded. ``counters`` are those of the
    hardware, from a run of their own, if requested; ``no_counters`` is the reason why there are none.
    """

    provenance: Provenance
    method: TimelineMethod
    name: str
    wall_ns: int
    busy_ns: int
    kernels: tuple[ProfiledKernel, ...] = ()
    copies: tuple[ProfiledCopy, ...] = ()
    waits: tuple[ProfiledWait, ...] = ()
    ranges: tuple[ProfiledRange, ...] = ()
    lines: tuple[ProfiledLine, ...] = ()
    before_bytes: int | None = None
    peak_bytes: int | None = None
    note: str = ""
    counters: tuple[HardwareCounters, ...] = ()
    no_counters: str = ""

    def kernel(self, key: str) -> ProfiledKernel:
        """Return the totals of the kernel with the given name.

        Raises
        ------
        KeyError
            If none ran; the message names those that did.
        """
        for kernel in self.kernels:
            if kernel.key == key:
                return kernel
        names = ", ".join(kernel.key for kernel in self.kernels) or "no kernel"
        raise KeyError(f"The kernel {key!r} did not run. Kernels that ran: {names}.")


def _divide_by_time(amount: int | None, time_ns: int) -> float | None:
    return None if amount is None or not time_ns else amount / time_ns
