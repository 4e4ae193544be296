"""Launches on a virtual device: checks, packing of arguments, execution, and modelled times."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from virtualgpu.launch import limits
from virtualgpu.launch.compiled import CompiledKernel, check_registers_fit
from virtualgpu.launch.launch import Launch
from virtualgpu.launch.pace import compute_pace
from virtualgpu.launch.params import pack_arguments
from virtualgpu.model import bus, cost
from virtualgpu.model.caches.geometry import compute_cache_sizes
from virtualgpu.model.choice import DEFAULT_WATCHDOG_S
from virtualgpu.model.graph import KernelCounts, Operation
from virtualgpu.model.links.ports import PeerTransfers
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.model.placement import Placement, place_blocks
from virtualgpu.model.recording.watch import Regions, RunWatched
from virtualgpu.records import (
    SECTOR_BYTES,
    Dim3,
    GraphNode,
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
    """A launch that was checked against the limits of a device, with all data needed to run it.

    The field ``launch`` keeps the arguments alive until the kernel has run. ``arrays`` maps the addresses of
    array arguments to their bytes, ``parameter_names`` to their parameters. If ``is_cold`` is true, no array
    is in L2 at the start.
    """

    launch: Launch
    device: VirtualDevice
    kernel: CompiledKernel
    packed_launch: PackedLaunch
    arrays: dict[int, int]
    parameter_names: dict[int, str]
    occupancy: Occupancy
    max_dynamic_bytes: int | None = None
    is_cold: bool = False

    @property
    def grid(self) -> Dim3:
        return self.packed_launch.grid

    @property
    def block(self) -> Dim3:
        return self.packed_launch.block

    @property
    def blocks_per_sm(self) -> int:
        """Number of blocks that one SM can run at the same time. The value is at least 1, even if no block
        fits on the SM.
        """
        return max(self.occupancy.blocks_per_sm, 1)

    @property
    def resident_blocks(self) -> int:
        """Number of blocks of this launch that the device can run at the same time."""
        return self.occupancy.blocks_per_sm * self.device.info.sm_count

    @property
    def l1_bytes(self) -> int:
        """Size of the L1 cache of each SM in bytes. The size depends on the shared memory of the resident
        blocks.
        """
        info = self.device.info
        stats = self.kernel.stats
        shared_bytes = (
            stats.static_shared_bytes + self.packed_launch.shared_bytes + info.reserved_shared_per_block_bytes
        )
        blocks = min(self.blocks_per_sm, -(-prod(self.grid) // info.sm_count))
        return compute_cache_sizes(info, shared_bytes, blocks).l1_bytes

    @property
    def sm_share(self) -> float:
        """Fraction of the device's slots for resident blocks that the grid fills, at most 1."""
        return min(1.0, prod(self.grid) / (self.device.info.sm_count * self.blocks_per_sm))

    @property
    def waves(self) -> int:
        """Number of waves of resident blocks that the grid needs, rounded up."""
        return max(1, -(-prod(self.grid) // (self.device.info.sm_count * self.blocks_per_sm)))

    @property
    def options(self) -> RunOptions:
        """The engine options for running the kernel without observers."""
        from virtualgpu.engine import RunOptions

        device = self.device
        return RunOptions(
            device_name=device.info.as_virtual.device,
            sm_count=device.info.sm_count,
            l1_bytes=self.l1_bytes,
            resident_blocks=self.resident_blocks,
            watchdog_s=device.watchdog_s,
            patient=device.watchdog_s == DEFAULT_WATCHDOG_S,
            idle_s=device.idle_s,
            stdout=device.machine.stdout,
            make_launch_observer=device.machine.make_launch_observer,
            independent_threads=device.has_independent_threads,
            block_order=None if device.block_order is None else device.block_order(prod(self.grid)),
            turns_seed=device.turns_seed,
        )

    def run(self, options: RunOptions | None = None) -> FinishedLaunch:
        """Execute the kernel without adding its time to the modelled clock.

        A fault raises an error from `virtualgpu.cuda_errors`.
        """
        device = self.device
        device.machine.count_launch()
        for address, name in self.parameter_names.items():
            device.memory.add_parameter_name(address, name)
        result = self.kernel.program.launch(self.packed_launch, device.memory, options or self.options)
        missing_bytes = device.l2.mark_used(self.arrays)
        return FinishedLaunch(self, result, sum(self.arrays.values()) if self.is_cold else missing_bytes)

    def submit(self, stream: Any, options: RunOptions | None = None) -> FinishedLaunch | None:
        """Submit the launch to a stream, which runs the kernel and adds the modelled duration.

        The result is None if the stream captures a graph.
        """
        finished_launches: list[FinishedLaunch] = []
        operation_details = self._operation_details

        def record_finished_launch(launch: FinishedLaunch) -> float:
            finished_launches[:] = [launch]
            return launch.stream_time_ns(
                operation_details["kernel_counts"], operation_details["peer_transfers"]
            )

        def run() -> float:
            return record_finished_launch(self.run(options))

        def run_while_watched(run_watched: RunWatched) -> tuple[float, tuple[Regions, ...]]:
            finished_launch, accessed_regions = run_watched(self, options)
            return record_finished_launch(finished_launch), accessed_regions

        stream.enqueue(
            "CONCURRENT_KERNEL",
            self.packed_launch.title,
            run,
            device=self.device,
            run_watched=run_while_watched,
            **operation_details,
        )
        return finished_launches[0] if finished_launches else None

    @property
    def _operation_details(self) -> dict[str, Any]:
        """Data of the kernel for the operation in its stream."""
        return {
            "sm_share": self.sm_share,
            "waves": self.waves,
            "grid": self.grid,
            "block": self.block,
            "shared_bytes": self.packed_launch.shared_bytes,
            "kernel_counts": KernelCounts(),
            "peer_transfers": PeerTransfers(),
            "kernel_call": self,
        }

    @property
    def _make_operation(self) -> Operation:
        operation_details = self._operation_details

        def run() -> float:
            return self.run().stream_time_ns(
                operation_details["kernel_counts"], operation_details["peer_transfers"]
            )

        def run_while_watched(run_watched: RunWatched) -> tuple[float, tuple[Regions, ...]]:
            finished_launch, accessed_regions = run_watched(self, None)
            return finished_launch.stream_time_ns(
                operation_details["kernel_counts"], operation_details["peer_transfers"]
            ), accessed_regions

        return Operation(
            "CONCURRENT_KERNEL",
            self.packed_launch.title,
            run,
            run_watched=run_while_watched,
            **operation_details,
        )

    # Nodes of graphs

    @property
    def parameters(self) -> tuple[NodeParameter, ...]:
        """The kernel's parameters as bytes, with names and types if the source is available."""
        memory = self.device.memory
        params = self.kernel.entry.params
        source_params = self.kernel.source_params or ()
        names_and_types = (
            [(p.name, p.type_text) for p in source_params] if len(source_params) == len(params) else []
        )
        first_address = memory.base_address
        end_address = memory.base_address + memory.arena_bytes
        return tuple(
            NodeParameter(
                param_bytes := self.packed_launch.params[param.offset : param.offset + param.size_bytes],
                param.offset,
                *(names_and_types[index] if names_and_types else ("", "")),
                addresses=tuple(
                    address
                    for address in np.frombuffer(param_bytes, np.uint64, len(param_bytes) // 8).tolist()
                    if first_address <= address < end_address
                ),
            )
            for index, param in enumerate(params)
        )

    def make_changed_operation(self, node: GraphNode) -> Operation:
        """Return a copy of the launch with the parameters and launch shape of a graph node, after checking
        them.
        """
        assert node.grid is not None
        assert node.block is not None
        buffer = bytearray(self.packed_launch.params)
        for parameter in node.parameters:
            buffer[parameter.offset : parameter.offset + len(parameter.data)] = parameter.data
        moved_addresses = {
            old_address: new_address
            for old_parameter, new_parameter in zip(self.parameters, node.parameters, strict=True)
            for old_address, new_address in zip(
                old_parameter.addresses, new_parameter.addresses, strict=False
            )
        }
        launch = replace(self.launch, grid=node.grid, block=node.block, shared_bytes=node.shared_bytes)
        node_occupancy = _check_limits(self.device, self.kernel, launch, self.max_dynamic_bytes)
        packed_launch = replace(
            self.packed_launch,
            grid=node.grid,
            block=node.block,
            shared_bytes=node.shared_bytes,
            params=bytes(buffer),
        )
        arrays = {moved_addresses.get(address, address): size for address, size in self.arrays.items()}
        return replace(
            self,
            launch=launch,
            packed_launch=packed_launch,
            arrays=arrays,
            parameter_names={},
            occupancy=node_occupancy,
        )._make_operation

    def make_graph_operation(self) -> Operation:
        """Return a copy of the launch for a graph node. The copy stores addresses and does not keep arrays
        alive.
        """
        return replace(self, launch=replace(self.launch, args=()))._make_operation

    def as_cooperative(self) -> PreparedLaunch:
        """Return a copy of the launch as a cooperative launch.

        Raises
        ------
        CUDADriverError
            ``CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE`` (720), if not all blocks fit at once.
        """
        limits.check_cooperative(self.device.info, prod(self.grid), self.resident_blocks)
        return replace(self, packed_launch=replace(self.packed_launch, cooperative=True))

    def make_cooperative(self) -> PreparedLaunch:
        """Return a copy of the launch as a cooperative launch, with a grid that fits on the device.

        If the grid is too large, it is reduced and a warning is shown.

        Raises
        ------
        ValueError
            As CuPy, if a grid of several dimensions does not fit.
        """
        block_limit = self.resident_blocks
        blocks = prod(self.grid)
        if blocks <= block_limit:
            return self.as_cooperative()
        if self.grid[1:] != (1, 1):
            x, y, z = self.grid
            raise ValueError(f"The specified grid size ({x} * {y} * {z}) exceeds the limit ({block_limit}).")
        warnings.warn(
            f"The grid size will be reduced from {blocks} to {block_limit}, as the specified grid size "
            "exceeds the limit.",
            stacklevel=4,
        )
        return replace(
            self, packed_launch=replace(self.packed_launch, grid=(block_limit, 1, 1), cooperative=True)
        )


@dataclass(frozen=True)
class FinishedLaunch:
    """A launch that has finished, with its counters and its modelled times.

    The value ``cold_bytes`` is the number of bytes of its arrays that were not in L2 at the start.
    """

    prepared_launch: PreparedLaunch
    result: LaunchResult
    cold_bytes: int = 0

    @cached_property
    def _kernel_work(self) -> cost.KernelWork:
        result = self.result
        prepared_launch = self.prepared_launch
        assert result.counters is not None
        clk_by_pipe = cost.pipe_clk(prepared_launch.device.info)
        return cost.KernelWork(
            warp_instructions=result.block_warp_instructions,
            longest_warp_instructions=result.block_longest_warp,
            sectors=result.block_sectors,
            counters=cost.estimate_machine_counters(result.counters),
            executions=result.executions,
            lane_executions=result.lane_executions,
            pace=prepared_launch.kernel.program.get_cached(
                ("pace", result.kernel.name, *clk_by_pipe.values()),
                lambda: compute_pace(result.kernel, clk_by_pipe),
            ),
            arrays=cost.ArrayBytes(
                sum(prepared_launch.arrays.values()),
                min(prepared_launch.arrays.values(), default=0),
                self.cold_bytes,
                self._atomic_array_bytes,
            ),
        )

    @property
    def _atomic_array_bytes(self) -> dict[int, int]:
        """The size of the array that each atomic access to global memory changes, by the access's pc."""
        from virtualgpu.engine.observe.origin import find_base_pointer, find_register_writers
        from virtualgpu.engine.observe.results import source_index

        prepared_launch = self.prepared_launch
        assert self.result.counters is not None
        pcs = {a.pc for a in self.result.counters.accesses if a.kind == "atomic" and a.space != "shared"}
        if not pcs:
            return {}
        entry = prepared_launch.kernel.entry
        writers = prepared_launch.kernel.program.get_cached(
            ("writers", entry.name), lambda: find_register_writers(entry)
        )
        array_bytes = {}
        for instruction in entry.instructions:
            pc = source_index(instruction)
            if pc in pcs:
                pointer = find_base_pointer(
                    entry, instruction, prepared_launch.packed_launch.params, {}, writers
                )
                if pointer in prepared_launch.arrays:
                    array_bytes[pc] = prepared_launch.arrays[pointer]
        return array_bytes

    @cached_property
    def placement(self) -> Placement:
        """The SM, start time and end time of every block."""
        info = self.prepared_launch.device.info
        blocks_per_sm = self.prepared_launch.blocks_per_sm
        durations = cost.block_durations_ns(info, self._kernel_work, blocks_per_sm)
        return place_blocks(
            durations, info.sm_count, blocks_per_sm, cost.dispatch_ns(info, prod(self.prepared_launch.block))
        )

    @property
    def duration_ns(self) -> float:
        """Modelled duration of the kernel in ns."""
        _, _, end_ns = self.placement
        return cost.kernel_start_ns(self._kernel_work) + float(end_ns.max(initial=0.0))

    @property
    def costs(self) -> LaunchCosts:
        """The causes of the modelled time of the launch. The record states for each cause how long the launch
        would take without it.
        """
        from virtualgpu.model.cost.causes import compute_costs

        prepared_launch = self.prepared_launch
        launch_costs = compute_costs(
            prepared_launch.device.info,
            self._kernel_work,
            prepared_launch.occupancy,
            prepared_launch.launch.source.code,
        )
        uses_local_arrays = any(access.space == "local" for access in self._kernel_work.counters.accesses)
        return replace(
            launch_costs, spilled_bytes=0 if uses_local_arrays else prepared_launch.kernel.stats.local_bytes
        )

    @property
    def kernel_and_bus_ns(self) -> float:
        """Duration of the kernel in ns, including the transfer of managed or host memory that it accesses."""
        accessed_bytes = SECTOR_BYTES * float(self.result.block_sectors.sum())
        return bus.add_bus_time_ns(
            self.prepared_launch.device, self.duration_ns, self.prepared_launch.arrays, accessed_bytes
        )

    def stream_time_ns(self, kernel_counts: KernelCounts, passage: PeerTransfers) -> float:
        """Return the time in ns for which the kernel occupies its stream, including transfers between
        devices.

        The transfers are stored in `passage`, and the counts for a timeline in `kernel_counts`.
        """
        if self.prepared_launch.device.machine.clock.recorder is not None:
            kernel_work = self._kernel_work
            sectors = kernel_work.missed_sectors + sum(
                access.sectors for access in kernel_work.accesses_of("store", "atomic")
            )
            kernel_counts.moved_bytes = SECTOR_BYTES * sectors
            kernel_counts.flop = kernel_work.counters.total_flops
            kernel_counts.double_flop = kernel_work.counters.flops.get("f64", 0)
        prepared_launch = self.prepared_launch
        device = self.prepared_launch.device
        if not device.memory.peers:
            return self.kernel_and_bus_ns
        from virtualgpu.launch.peer_traffic import count_peer_bytes

        assert self.result.counters is not None
        entry_function = prepared_launch.kernel.entry
        accesses = self.result.counters.accesses
        transferred_bytes = count_peer_bytes(
            device, entry_function, prepared_launch.packed_launch.params, accesses, prepared_launch.arrays
        )
        return bus.add_link_time_ns(device, self.kernel_and_bus_ns, transferred_bytes, passage)

    @property
    def trace(self) -> LaunchTrace:
        """The SM and the times of every block, as computed by the time model."""
        prepared_launch = self.prepared_launch
        info = self.prepared_launch.device.info
        sm, start_ns, end_ns = self.placement
        return LaunchTrace(
            provenance=info.as_virtual,
            kernel_name=prepared_launch.kernel.name,
            grid=prepared_launch.grid,
            block=prepared_launch.block,
            shared_bytes=prepared_launch.packed_launch.shared_bytes,
            sm_count=info.sm_count,
            block_index=np.arange(sm.size, dtype=np.int64),
            sm_id=sm,
            start_ns=np.rint(start_ns).astype(np.int64),
            end_ns=np.rint(end_ns).astype(np.int64),
            occupancy=prepared_launch.occupancy,
            note="Times and SMs come from the time model; the kernel itself was executed.",
        ).take_sample(MAX_LISTED_BLOCKS)


def prepare_launch(
    device: VirtualDevice,
    kernel: CompiledKernel,
    launch: Launch,
    max_dynamic_bytes: int | None = None,
    *,
    allow_extra: bool = False,
) -> PreparedLaunch:
    """Check a launch against the limits of the device, and pack the kernel's arguments.

    Parameters
    ----------
    device, kernel
        Device of the launch, and the launched kernel as loaded on it.
    launch
        The launch.
    max_dynamic_bytes
        Dynamic shared memory that the kernel has opted in to; None for the device's maximum.
    allow_extra
        Whether extra arguments are allowed, as in a call of the kernel itself.

    Raises
    ------
    CUDADriverError
        ``CUDA_ERROR_INVALID_VALUE`` (1) or ``CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES`` (701).
    TypeError, ValueError
        For arguments that do not fit the kernel's parameters.
    """
    from virtualgpu.engine import PackedLaunch

    kernel_occupancy = _check_limits(device, kernel, launch, max_dynamic_bytes)
    entry_function = kernel.entry
    packed_arguments = pack_arguments(
        kernel.name,
        entry_function.params,
        entry_function.param_bytes,
        kernel.source_params,
        launch.args,
        device,
        allow_extra=allow_extra,
    )
    return PreparedLaunch(
        launch,
        device,
        kernel,
        PackedLaunch(
            kernel.symbol,
            launch.grid,
            launch.block,
            packed_arguments.buffer,
            launch.shared_bytes,
            source_name=kernel.name,
        ),
        packed_arguments.arrays,
        packed_arguments.names,
        kernel_occupancy,
        max_dynamic_bytes,
    )


def _check_limits(
    device: VirtualDevice, kernel: CompiledKernel, launch: Launch, max_dynamic_bytes: int | None
) -> Occupancy:
    """Check a launch against the limits of device and kernel, and return the kernel's occupancy."""
    info = device.info
    limits.check_shape(info, launch.grid, launch.block)
    limits.check_kernel(info, kernel.stats, kernel.resources.launch_bound_threads, launch.block)
    limits.check_shared(info, kernel.stats, launch.shared_bytes, max_dynamic_bytes)
    shared_bytes = kernel.stats.static_shared_bytes + launch.shared_bytes
    return check_registers_fit(info, kernel.resources, launch.block_threads, shared_bytes)
