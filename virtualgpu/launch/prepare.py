"""A launch on a virtual device: checked against it and packed, then run, timed and placed once."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from virtualgpu.launch import limits
from virtualgpu.launch.compiled import CompiledModule, fit
from virtualgpu.launch.launch import Launch
from virtualgpu.launch.pace import pace
from virtualgpu.launch.params import pack
from virtualgpu.model import bus, cost
from virtualgpu.model.choice import DEFAULT_WATCHDOG_S
from virtualgpu.model.graph import Counted, Operation
from virtualgpu.model.links.ports import Passage
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.model.placement import Placement, place_blocks
from virtualgpu.model.recording.watch import Regions, RunWatched
from virtualgpu.records import (
    SECTOR_BYTES,
    Dim3,
    GraphNode,
    KernelStats,
    LaunchTrace,
    NodeParameter,
    Occupancy,
)
from virtualgpu.records.launch.causes import LaunchCosts

if TYPE_CHECKING:
    from virtualgpu.engine import LaunchResult, PackedLaunch, RunOptions

MAX_LISTED_BLOCKS = 200_000


@dataclass(frozen=True, slots=True)
class PreparedLaunch:
    """A launch that a device has checked: everything the engine and the time model need.

    ``launch`` keeps its arguments alive until it has run. ``arrays`` maps the addresses of array arguments
    to their bytes, ``names`` to their parameters. ``cold`` takes L2 to hold none of them when it begins.
    """

    launch: Launch
    device: VirtualDevice
    module: CompiledModule
    stats: KernelStats
    packed: PackedLaunch
    arrays: dict[int, int]
    names: dict[int, str]
    occupancy: Occupancy
    max_dynamic_bytes: int | None = None
    cold: bool = False

    @property
    def grid(self) -> Dim3:
        return self.packed.grid

    @property
    def block(self) -> Dim3:
        return self.packed.block

    @property
    def blocks_per_sm(self) -> int:
        """Blocks that share an SM, at least 1."""
        return max(self.occupancy.blocks_per_sm, 1)

    @property
    def resident_blocks(self) -> int:
        """Blocks of this launch that the device holds at once."""
        return self.occupancy.blocks_per_sm * self.device.info.sm_count

    @property
    def sm_share(self) -> float:
        """Share of the device's block slots that the grid fills, 0 to 1."""
        return min(1.0, prod(self.grid) / (self.device.info.sm_count * self.blocks_per_sm))

    @property
    def waves(self) -> int:
        """How often the grid's blocks fill the device's block slots, at least 1."""
        return max(1, -(-prod(self.grid) // (self.device.info.sm_count * self.blocks_per_sm)))

    @property
    def options(self) -> RunOptions:
        """How its device runs it when nothing else is asked for."""
        from virtualgpu.engine import RunOptions

        device = self.device
        return RunOptions(
            device_name=device.info.as_virtual.device,
            sm_count=device.info.sm_count,
            resident_blocks=self.resident_blocks,
            watchdog_s=device.watchdog_s,
            patient=device.watchdog_s == DEFAULT_WATCHDOG_S,
            idle_s=device.idle_s,
            stdout=device.machine.stdout,
            onlooker=device.machine.onlooker,
            independent_threads=device.independent_threads,
            block_order=None if device.block_order is None else device.block_order(prod(self.grid)),
            turns_seed=device.turns_seed,
        )

    def run(self, options: RunOptions | None = None) -> FinishedLaunch:
        """Execute the kernel, the modelled clock aside; faults raise those of `virtualgpu.cuda_errors`."""
        device = self.device
        device.machine.count_launch()
        for address, name in self.names.items():
            device.memory.name(address, name)
        program = self.module.program(device)
        result = program.launch(self.packed, device.memory, options or self.options)
        missing = device.l2.touch(self.arrays)
        return FinishedLaunch(self, result, sum(self.arrays.values()) if self.cold else missing)

    def submit(self, stream: Any, options: RunOptions | None = None) -> FinishedLaunch | None:
        """Give the launch to a stream, which executes it and lets it take its modelled time.

        None where the stream captures a graph, which will run it.
        """
        done: list[FinishedLaunch] = []
        about = self._about

        def finished(launch: FinishedLaunch) -> float:
            done[:] = [launch]
            return launch.taken_ns(about["counted"], about["passage"])

        def run() -> float:
            return finished(self.run(options))

        def watched(run_watched: RunWatched) -> tuple[float, tuple[Regions, ...]]:
            launch, touched = run_watched(self, options)
            return finished(launch), touched

        stream.enqueue(
            "CONCURRENT_KERNEL", self.packed.title, run, device=self.device, watched=watched, **about
        )
        return done[0] if done else None

    @property
    def _about(self) -> dict[str, Any]:
        """What a stream is told of the kernel."""
        return {
            "sm_share": self.sm_share,
            "waves": self.waves,
            "grid": self.grid,
            "block": self.block,
            "shared_bytes": self.packed.shared_bytes,
            "counted": Counted(),
            "passage": Passage(),
            "call": self,
        }

    @property
    def _operation(self) -> Operation:
        about = self._about

        def run() -> float:
            return self.run().taken_ns(about["counted"], about["passage"])

        def watched(run_watched: RunWatched) -> tuple[float, tuple[Regions, ...]]:
            launch, touched = run_watched(self, None)
            return launch.taken_ns(about["counted"], about["passage"]), touched

        return Operation("CONCURRENT_KERNEL", self.packed.title, run, watched=watched, **about)

    # As a node of a graph

    @property
    def parameters(self) -> tuple[NodeParameter, ...]:
        """The kernel's parameters as bytes, with their names and types where the source tells them."""
        memory = self.device.memory
        symbol = self.packed.name
        params = self.module.entry(symbol, self.device).params
        spelled = self.module.source_params(symbol) or ()
        names = [(p.name, p.type_text) for p in spelled] if len(spelled) == len(params) else []
        low = memory.base_address
        high = memory.base_address + memory.arena_bytes
        return tuple(
            NodeParameter(
                data := self.packed.params[param.offset : param.offset + param.size_bytes],
                param.offset,
                *(names[at] if names else ("", "")),
                addresses=tuple(
                    w for w in np.frombuffer(data, np.uint64, len(data) // 8).tolist() if low <= w < high
                ),
            )
            for at, param in enumerate(params)
        )

    def changed(self, node: GraphNode) -> Operation:
        """The launch with the parameters and the shape of a graph's record, checked as a launch is."""
        assert node.grid is not None
        assert node.block is not None
        buffer = bytearray(self.packed.params)
        for parameter in node.parameters:
            buffer[parameter.offset : parameter.offset + len(parameter.data)] = parameter.data
        moves = {
            old: new
            for before, now in zip(self.parameters, node.parameters, strict=True)
            for old, new in zip(before.addresses, now.addresses, strict=False)
        }
        launch = replace(self.launch, grid=node.grid, block=node.block, shared_bytes=node.shared_bytes)
        _, fits = _checked(self.device, self.module, launch, self.max_dynamic_bytes)
        packed = replace(
            self.packed,
            grid=node.grid,
            block=node.block,
            shared_bytes=node.shared_bytes,
            params=bytes(buffer),
        )
        arrays = {moves.get(address, address): size for address, size in self.arrays.items()}
        return replace(self, launch=launch, packed=packed, arrays=arrays, names={}, occupancy=fits)._operation

    def released(self) -> Operation:
        """The launch as a node, which holds addresses and no arrays."""
        return replace(self, launch=replace(self.launch, args=()))._operation

    def as_cooperative(self) -> PreparedLaunch:
        """The launch as a cooperative one.

        Raises
        ------
        CUDADriverError
            ``CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE`` (720), if not all blocks fit at once.
        """
        limits.check_cooperative(self.device.info, prod(self.grid), self.resident_blocks)
        return replace(self, packed=replace(self.packed, cooperative=True))

    def fitted_cooperative(self) -> PreparedLaunch:
        """The launch as a cooperative one, its grid cut with a warning to what the device holds at once.

        Raises
        ------
        ValueError
            As CuPy, if a grid of several dimensions does not fit.
        """
        most = self.resident_blocks
        blocks = prod(self.grid)
        if blocks <= most:
            return self.as_cooperative()
        if self.grid[1:] != (1, 1):
            x, y, z = self.grid
            raise ValueError(f"The specified grid size ({x} * {y} * {z}) exceeds the limit ({most}).")
        warnings.warn(
            f"The grid size will be reduced from {blocks} to {most}, as the specified grid size exceeds the "
            "limit.",
            stacklevel=4,
        )
        return replace(self, packed=replace(self.packed, grid=(most, 1, 1), cooperative=True))


@dataclass(frozen=True)
class FinishedLaunch:
    """A launch that has run: what it did, and where the time model puts its blocks.

    ``cold_bytes`` of its arrays were not in L2 when it began.
    """

    prepared: PreparedLaunch
    result: LaunchResult
    cold_bytes: int = 0

    @cached_property
    def _work(self) -> cost.KernelWork:
        result = self.result
        prepared = self.prepared
        assert result.counters is not None
        capability = prepared.device.info.compute_capability
        return cost.KernelWork(
            warp_instructions=result.block_warp_instructions,
            longest_warp=result.block_longest,
            sectors=result.block_sectors,
            counters=result.counters,
            executions=result.executions,
            lane_executions=result.lane_executions,
            pace=prepared.module.program(prepared.device).cached(
                ("pace", result.kernel.name, capability), lambda: pace(result.kernel, capability)
            ),
            arrays=cost.ArrayBytes(
                sum(prepared.arrays.values()), min(prepared.arrays.values(), default=0), self.cold_bytes
            ),
        )

    @cached_property
    def placement(self) -> Placement:
        """SM, start and end of every block."""
        info = self.prepared.device.info
        per_sm = self.prepared.blocks_per_sm
        durations = cost.block_durations_ns(info, self._work, per_sm)
        return place_blocks(
            durations, info.sm_count, per_sm, cost.dispatch_ns(info, prod(self.prepared.block))
        )

    @property
    def duration_ns(self) -> float:
        """Modelled duration of the kernel on the device."""
        _, _, end = self.placement
        return cost.kernel_start_ns(self._work) + float(end.max(initial=0.0))

    @property
    def costs(self) -> LaunchCosts:
        """What its time is made of, and what it would be without each cause."""
        from virtualgpu.model.cost.causes import costs

        prepared = self.prepared
        found = costs(prepared.device.info, self._work, prepared.occupancy, prepared.launch.source.code)
        own = any(each.space == "local" for each in self._work.counters.accesses)
        return replace(found, spilled_bytes=0 if own else prepared.stats.local_bytes)

    @property
    def stream_ns(self) -> float:
        """What the stream is busy for: the kernel, and moving the managed or host memory that it asks for."""
        asked = SECTOR_BYTES * float(self.result.block_sectors.sum())
        return bus.kernel_ns(self.prepared.device, self.duration_ns, self.prepared.arrays, asked)

    def taken_ns(self, counted: Counted, passage: Passage) -> float:
        """`stream_ns`, or what it takes over the links that it uses; what it moves there is noted, as is what
        a timeline that is being recorded says of the kernel."""
        if self.prepared.device.machine.clock.recorder is not None:
            work = self._work
            sectors = work.missed_sectors + sum(access.sectors for access in work.of("store", "atomic"))
            counted.moved_bytes = SECTOR_BYTES * sectors
            counted.flop = sum(work.counters.flops.values())
            counted.double_flop = work.counters.flops.get("f64", 0)
        prepared = self.prepared
        device = self.prepared.device
        if not device.memory.peers:
            return self.stream_ns
        from virtualgpu.launch.reach import moved_between

        assert self.result.counters is not None
        entry = prepared.module.entry(prepared.packed.name, device)
        accesses = self.result.counters.accesses
        moved = moved_between(device, entry, prepared.packed.params, accesses, prepared.arrays)
        return bus.over_links_ns(device, self.stream_ns, moved, passage)

    @property
    def trace(self) -> LaunchTrace:
        """Which SM ran which block, and when, by the time model."""
        prepared = self.prepared
        info = self.prepared.device.info
        sm, start, end = self.placement
        return LaunchTrace(
            provenance=info.as_virtual,
            kernel_name=prepared.stats.name,
            grid=prepared.grid,
            block=prepared.block,
            shared_bytes=prepared.packed.shared_bytes,
            sm_count=info.sm_count,
            block_index=np.arange(sm.size, dtype=np.int64),
            sm_id=sm,
            start_ns=np.rint(start).astype(np.int64),
            end_ns=np.rint(end).astype(np.int64),
            occupancy=prepared.occupancy,
            note="Times and SMs come from the time model; the kernel itself was executed.",
        ).thinned(MAX_LISTED_BLOCKS)


def prepare(
    device: VirtualDevice,
    module: CompiledModule,
    launch: Launch,
    max_dynamic_bytes: int | None = None,
    *,
    surplus: bool = False,
) -> PreparedLaunch:
    """Check a launch against the device's limits and pack its arguments.

    Parameters
    ----------
    device, module
        Where it runs, and what its kernel was compiled to.
    launch
        The launch.
    max_dynamic_bytes
        Dynamic shared memory that the kernel has opted in to; None: as much as the device can give.
    surplus
        Whether there may be more arguments than parameters, as in a call of the kernel itself.

    Raises
    ------
    CUDADriverError
        ``CUDA_ERROR_INVALID_VALUE`` (1), ``CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES`` (701) or
        ``CUDA_ERROR_NOT_FOUND`` (500).
    TypeError, ValueError
        For arguments that do not fit the kernel's parameters.
    """
    from virtualgpu.engine import PackedLaunch

    symbol = module.symbol(launch.kernel.name)
    stats, fits = _checked(device, module, launch, max_dynamic_bytes)
    entry = module.entry(symbol, device)
    source = module.source_params(symbol)
    packed = pack(stats.name, entry.params, entry.param_bytes, source, launch.args, device, surplus=surplus)
    return PreparedLaunch(
        launch,
        device,
        module,
        stats,
        PackedLaunch(
            symbol, launch.grid, launch.block, packed.buffer, launch.shared_bytes, source_name=stats.name
        ),
        packed.arrays,
        packed.names,
        fits,
        max_dynamic_bytes,
    )


def _checked(
    device: VirtualDevice, module: CompiledModule, launch: Launch, max_dynamic_bytes: int | None
) -> tuple[KernelStats, Occupancy]:
    """What the compiler decided for the kernel, and how it fits, if the device's limits allow the launch."""
    symbol = module.symbol(launch.kernel.name)
    info = device.info
    stats = module.stats(symbol, info)
    limits.check_shape(info, launch.grid, launch.block)
    limits.check_kernel(info, stats, module.resources[symbol].launch_bound_threads, launch.block)
    limits.check_shared(info, stats, launch.shared_bytes, max_dynamic_bytes)
    shared = stats.static_shared_bytes + launch.shared_bytes
    return stats, fit(info, module.resources[symbol], launch.block_threads, shared)
