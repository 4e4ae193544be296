"""One launch on a virtual device: limits checked with CUDA's error names, run, timed, placed."""

from __future__ import annotations

import operator
import warnings
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from virtualgpu.cuda_errors import CUDADriverError
from virtualgpu.launch.compiled import CompiledModule
from virtualgpu.launch.params import Packed, pack
from virtualgpu.model import cost
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.model.occupancy import occupancy
from virtualgpu.model.placement import listed_step, place_blocks
from virtualgpu.records import DeviceInfo, Dim3, KernelStats, LaunchTrace, Occupancy, Provenance

if TYPE_CHECKING:
    from virtualgpu.engine import LaunchResult, RunOptions

_AXES = "xyz"


@dataclass(frozen=True, slots=True)
class PreparedLaunch:
    """A checked launch: everything the engine and the time model need."""

    device: VirtualDevice
    module: CompiledModule
    symbol: str
    stats: KernelStats
    grid: Dim3
    block: Dim3
    shared_bytes: int
    packed: Packed
    cooperative: bool = False

    @property
    def occupancy(self) -> Occupancy:
        return occupancy(
            self.device.info,
            prod(self.block),
            self.stats.registers_per_thread,
            self.stats.static_shared_bytes + self.shared_bytes,
        )

    @property
    def resident_blocks(self) -> int:
        """Blocks of this launch that the device holds at once."""
        return self.occupancy.blocks_per_sm * self.device.info.sm_count

    @property
    def options(self) -> RunOptions:
        """How its device runs it when nothing else is asked for."""
        from virtualgpu.engine import RunOptions

        device = self.device
        return RunOptions(
            device_name=device.info.provenance.device,
            sm_count=device.info.sm_count,
            watchdog_s=device.watchdog_s,
            stdout=device.machine.stdout,
            independent_threads=device.independent_threads,
            block_order=None if device.block_order is None else device.block_order(prod(self.grid)),
        )

    def run(self, options: RunOptions | None = None) -> LaunchResult:
        """Execute the kernel; faults raise the classes of `virtualgpu.cuda_errors`."""
        from virtualgpu.engine import PackedLaunch

        device = self.device
        device.machine.count_launch()
        for address, name in self.packed.names.items():
            device.memory.name(address, name)
        packed = PackedLaunch(
            self.symbol, self.grid, self.block, self.packed.buffer, self.shared_bytes, self.cooperative
        )
        return self.module.program(device).launch(packed, device.memory, options or self.options)

    def block_durations_ns(self, result: LaunchResult) -> npt.NDArray[np.float64]:
        """Modelled duration of every block."""
        work = self._work(result)
        return cost.block_durations_ns(self.device.info, work, max(self.occupancy.blocks_per_sm, 1))

    def duration_ns(self, result: LaunchResult) -> float:
        """Modelled duration of the kernel on the device."""
        _, _, end = self._place(self.block_durations_ns(result))
        return cost.kernel_start_ns(self._work(result)) + float(end.max(initial=0.0))

    def sm_share(self) -> float:
        """Share of the device's block slots that the grid fills, 0 to 1."""
        slots = self.device.info.sm_count * max(self.occupancy.blocks_per_sm, 1)
        return min(1.0, prod(self.grid) / slots)

    def launch_trace(self, result: LaunchResult) -> LaunchTrace:
        """Which SM ran which block, and when, by the time model."""
        info = self.device.info
        sm, start, end = self._place(self.block_durations_ns(result))
        step = listed_step(sm.size)
        return LaunchTrace(
            provenance=Provenance("modelled", info.provenance.device),
            kernel_name=self.stats.name,
            grid=self.grid,
            block=self.block,
            shared_bytes=self.shared_bytes,
            sm_count=info.sm_count,
            block_index=np.arange(0, sm.size, step, dtype=np.int64),
            sm_id=sm[::step],
            start_ns=np.rint(start[::step]).astype(np.int64),
            end_ns=np.rint(end[::step]).astype(np.int64),
            occupancy=self.occupancy,
            sampled=step,
            note="Times and SMs come from the time model; the kernel itself was executed.",
        )

    def _work(self, result: LaunchResult) -> cost.KernelWork:
        assert result.counters is not None
        arrays = self.packed.arrays.values()
        return cost.KernelWork(
            warp_instructions=result.block_warp_instructions,
            sectors=result.block_sectors,
            wavefronts=result.block_wavefronts,
            counters=result.counters,
            footprint_bytes=sum(arrays),
            smallest_array_bytes=min(arrays, default=0),
        )

    def _place(
        self, durations: npt.NDArray[np.float64]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        info = self.device.info
        return place_blocks(
            durations,
            info.sm_count,
            max(self.occupancy.blocks_per_sm, 1),
            cost.dispatch_ns(info, prod(self.block)),
        )


def prepare(
    device: VirtualDevice,
    module: CompiledModule,
    name: str,
    grid: Any,
    block: Any,
    args: Any,
    shared_bytes: int,
    max_dynamic_shared_bytes: int | None = None,
    cooperative: bool = False,
) -> PreparedLaunch:
    """Check a launch against the device's limits and pack its arguments.

    Parameters
    ----------
    max_dynamic_shared_bytes
        What the kernel has opted in to; None: as much as the device can give.

    Raises
    ------
    CUDADriverError
        ``CUDA_ERROR_INVALID_VALUE`` (1), ``CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES`` (701),
        ``CUDA_ERROR_NOT_FOUND`` (500) or ``CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE`` (720).
    TypeError, ValueError
        For a launch shape or arguments that make no sense.
    """
    symbol = module.symbol(name)
    info = device.info
    stats = module.stats(symbol, info)
    grid3, block3 = _dim3("grid", grid), _dim3("block", block)
    shared = _shared_bytes(shared_bytes)
    check_shape(info, grid3, block3)
    _check_kernel(info, stats, module.resources[symbol].launch_bound_threads, block3)
    _check_shared(info, stats, shared, max_dynamic_shared_bytes)
    entry = module.entry(symbol, device)
    packed = pack(stats.name, entry.params, entry.param_bytes, module.source_params(symbol), args, device)
    launch = PreparedLaunch(device, module, symbol, stats, grid3, block3, shared, packed, cooperative)
    if cooperative:
        _check_cooperative(launch)
    return launch


def at_least_one(sizes: Any) -> Any:
    """A grid or block with every size below 1 taken as 1, as CuPy launches it."""
    if not isinstance(sizes, tuple):
        return sizes
    return tuple(max(1, size) if isinstance(size, (int, np.integer)) else size for size in sizes)


def fitted_cooperative(launch: PreparedLaunch) -> PreparedLaunch:
    """The launch as a cooperative one, its grid cut with a warning to what the device holds at once.

    Raises
    ------
    ValueError
        As CuPy, if a grid of several dimensions does not fit.
    """
    most = launch.resident_blocks
    blocks = prod(launch.grid)
    if blocks <= most:
        return replace(launch, cooperative=True)
    if launch.grid[1:] != (1, 1):
        x, y, z = launch.grid
        raise ValueError(f"The specified grid size ({x} * {y} * {z}) exceeds the limit ({most}).")
    warnings.warn(
        f"The grid size will be reduced from {blocks} to {most}, as the specified grid size exceeds the "
        "limit.",
        stacklevel=3,
    )
    return replace(launch, grid=(most, 1, 1), cooperative=True)


def check_shape(info: DeviceInfo, grid: Dim3, block: Dim3) -> None:
    """Raise ``CUDA_ERROR_INVALID_VALUE`` for a grid or block that no kernel can have on the device."""
    for what, unit, sizes, limits in (
        ("grid", "blocks", grid, info.max_grid_dim),
        ("block", "threads", block, info.max_block_dim),
    ):
        for axis, size, limit in zip(_AXES, sizes, limits, strict=True):
            if size < 1:
                raise _invalid(f"{what}.{axis} is {size}; every dimension of a {what} is at least 1.")
            if size > limit and not (what == "block" and prod(block) > info.max_threads_per_block):
                raise _invalid(
                    f"{what}.{axis} is {size:,} {unit}, but the {info.name} allows at most {limit:,}. "
                    f"Use another dimension of the {what} too, or fewer {unit}."
                )
    threads = prod(block)
    if threads > info.max_threads_per_block:
        raise _invalid(
            f"{threads:,} threads per block, but the {info.name} allows at most "
            f"{info.max_threads_per_block:,}. Use smaller blocks and more of them."
        )


def _check_kernel(info: DeviceInfo, stats: KernelStats, bound: int | None, block: Dim3) -> None:
    threads = prod(block)
    if bound is not None and threads > bound:
        raise _invalid(
            f"{threads:,} threads per block, but kernel '{stats.name}' was compiled with "
            f"__launch_bounds__({bound}). Use at most {bound} threads or raise the bound."
        )
    if threads > stats.max_threads_per_block:
        raise CUDADriverError(
            701,
            "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
            f"too many resources requested for launch: {threads:,} threads of "
            f"{stats.registers_per_thread} registers each do not fit into the {info.registers_per_block:,} "
            f"registers a block may have on the {info.name}. Use at most {stats.max_threads_per_block:,} "
            f"threads per block, or let the compiler use fewer registers with __launch_bounds__({threads}).",
        )


def _check_shared(
    info: DeviceInfo, stats: KernelStats, shared_bytes: int, max_dynamic_shared_bytes: int | None
) -> None:
    most = info.shared_per_block_optin_bytes - stats.static_shared_bytes
    allowed = most if max_dynamic_shared_bytes is None else min(max_dynamic_shared_bytes, most)
    if shared_bytes <= allowed:
        return
    static = f" beside its {stats.static_shared_bytes:,} static ones" if stats.static_shared_bytes else ""
    if shared_bytes <= most:
        remedy = f"Set kernel.max_dynamic_shared_size_bytes = {shared_bytes} first."
    else:
        remedy = (
            f"The {info.name} has at most {info.shared_per_block_optin_bytes:,} bytes per block, opt-in "
            "included: use less."
        )
    raise _invalid(
        f"{shared_bytes:,} bytes of dynamic shared memory per block, but kernel '{stats.name}' may use "
        f"{allowed:,}{static}. {remedy}"
    )


def _check_cooperative(launch: PreparedLaunch) -> None:
    info = launch.device.info
    resident = launch.resident_blocks
    blocks = prod(launch.grid)
    if blocks > resident:
        raise CUDADriverError(
            720,
            "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
            f"too many blocks in cooperative launch: {blocks:,} blocks, but the {info.name} holds "
            f"{resident:,} of this kernel at once, and all must be there to wait for each other. Use fewer.",
        )


def _dim3(what: str, value: Any) -> Dim3:
    if not isinstance(value, tuple):
        raise TypeError(
            f"Argument '{what}' has incorrect type (expected tuple, got {type(value).__name__}). "
            f"Write it as a tuple, for instance ({value if isinstance(value, int) else 'n'},)."
        )
    if not 1 <= len(value) <= 3:
        raise TypeError(f"Argument '{what}' has {len(value)} dimensions; give one to three, as in (n,).")
    sizes = []
    for size in value:
        try:
            sizes.append(operator.index(size))
        except TypeError:
            raise TypeError(
                f"Argument '{what}' needs whole numbers, not {size!r}; divide with //: (n + 255) // 256."
            ) from None
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _shared_bytes(value: Any) -> int:
    try:
        size = operator.index(value)
    except TypeError:
        raise TypeError(f"shared_mem is a number of bytes, not {value!r}.") from None
    if size < 0:
        raise ValueError(f"shared_mem is a number of bytes and cannot be {size}.")
    return size


def _invalid(message: str) -> CUDADriverError:
    return CUDADriverError(1, "CUDA_ERROR_INVALID_VALUE", f"invalid argument: {message}")
