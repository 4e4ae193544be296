"""Causes of a launch's time: for each cause, the modelled time of the launch without it.

Each remedy changes the work of a launch (`KernelWork`) or its placement on the device, and the time is
modelled again. Its gain is the ratio of two modelled times, never a threshold of a counter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from virtualgpu.model.cost import kernels
from virtualgpu.model.cost.host import GRAPH_NODE_NS, launch_overhead_ns
from virtualgpu.model.cost.instructions import PIPES, pipe_clk
from virtualgpu.model.cost.kernels import KernelWork
from virtualgpu.model.cost.pace import LATENCIES
from virtualgpu.model.cost.rates import clock_ghz
from virtualgpu.model.placement import place_blocks
from virtualgpu.model.tensor_rates import find_mma_sync_shares
from virtualgpu.records import SECTOR_BYTES, WARP_SIZE, AccessCounters, DeviceInfo, Occupancy
from virtualgpu.records.launch.causes import Cause, CauseKind, LaunchCosts

OVERLAPPED_OPERATIONS = 4.0  # independent operations that a thread gets where it waits
# bytes of a bank, and the most bytes that a lane reads at once
WORD_BYTES = 4
MAX_LOAD_BYTES = 16
# Of a load from a tile: ptxas does not move it as far as the load from global memory that it replaces.
TILE_LOAD_CLK = 60.0
TILE_READ_SHARE = 0.9  # share of the reads of a tile that registers do not save
STRIDED_SECTOR_RATIO = (
    2.0  # ratio of sectors to ideal sectors from which an access counts mainly as uncoalesced
)
TILE_SAVED_READS = 16.0  # number of reads that a tile in shared memory replaces
DIVISION_INSTRUCTIONS = 21.0  # machine instructions of an integer division
USUAL_BLOCK_THREADS = 256  # threads of a usual block
MIN_WARP_INSTRUCTIONS = 30.0  # instructions of a warp that justify starting a thread block
UNEVEN_RATIO = 1.5  # ratio of the longest block to the mean
# Divisors of the gain of remedies outside the kernel: graphs, and a last wave that is not full.
OUTSIDE_KERNEL_GAIN_DIVISOR = 1.3
PARTIAL_WAVE_GAIN_DIVISOR = 1.15
# Accesses to local memory: instructions of one, the share that must stay indexed, and the iterations of a
# loop that overlap once the values are in registers.
LOCAL_ACCESS_INSTRUCTIONS = 3.0
INDEXED_ARRAY_SHARE = 0.7
REGISTER_OVERLAP = 3.0
# Functions that have intrinsics, and the share of their instructions that intrinsics save.
_ACCURATE_FUNCTION_PATTERN = re.compile(r"\b(?:pow|exp|exp2|exp10|log|log2|log10|sin|cos|tan|sincos)f?\s*\(")
INTRINSIC_SAVED_SHARE = 0.7
MIN_GAIN = 1.02  # remedies below it are not reported
GENERIC_CAUSE_KINDS = ("in flight", "latency")  # causes of a kernel that has no particular one


@dataclass(frozen=True)
class PricedLaunch:
    """A kernel launch whose time is modelled as it is or with an assumed improvement."""

    info: DeviceInfo
    work: KernelWork
    blocks_per_sm_limit: int
    block_threads: int
    wait_share: float = 1.0  # remaining share of a block's own time
    all_slots_busy: bool = False  # all slots work until the end
    pieces_per_block: float = 1.0  # pieces of each block, on different SMs
    merged_blocks: float = 1.0  # blocks that are merged into one

    @cached_property
    def own_ns(self) -> npt.NDArray[np.float64]:
        full_ns = kernels.own_ns(self.info, self.work)
        return (
            kernels.BLOCK_FLOOR_NS
            + (full_ns - kernels.BLOCK_FLOOR_NS) * self.wait_share / self.pieces_per_block
        )

    @cached_property
    def durations_ns(self) -> npt.NDArray[np.float64]:
        steady_share = kernels.estimate_steadiness(self.info, self.work, self.blocks_per_sm_limit)
        sm_ns, tensor_ns, chip_ns = kernels.shared_ns(self.info, self.work, self.blocks_per_sm_limit)
        busy_sms = min(max(self.work.blocks, 1), self.info.sm_count)
        sms_per_block = min(self.pieces_per_block, self.info.sm_count / busy_sms)
        return kernels.combine_overlapped_ns(
            self.own_ns, sm_ns / sms_per_block, tensor_ns / sms_per_block, chip_ns, steady_share
        )

    @cached_property
    def time_ns(self) -> float:
        """Modelled duration of the kernel in ns."""
        start_ns = kernels.kernel_start_ns(self.work)
        dispatch_ns = (
            kernels.dispatch_ns(self.info, round(self.block_threads * self.merged_blocks))
            / self.merged_blocks
        )
        if self.all_slots_busy:
            block_slots = min(self.info.sm_count * self.blocks_per_sm_limit, max(self.work.blocks, 1))
            work_ns = float(self.durations_ns.sum()) / block_slots
            return start_ns + max(work_ns, dispatch_ns * self.work.blocks)
        _, _, ends_ns = place_blocks(
            self.durations_ns, self.info.sm_count, self.blocks_per_sm_limit, dispatch_ns
        )
        return start_ns + float(ends_ns.max(initial=0.0))


def compute_costs(info: DeviceInfo, work: KernelWork, occupancy: Occupancy, code: str = "") -> LaunchCosts:
    """Return the modelled time of each stage of a launch, and the causes of this time. The causes are sorted
    by gain in descending order.

    `code` is the source code whose lines the causes name.
    """
    launch = PricedLaunch(info, work, max(occupancy.blocks_per_sm, 1), math.prod(work.counters.block))
    counters = work.counters
    causes = _CauseSearch(launch, occupancy, code).find_causes()
    return LaunchCosts(
        provenance=info.as_virtual,
        kernel_name=counters.kernel_name,
        grid=counters.grid,
        block=counters.block,
        shared_bytes=counters.shared_bytes,
        sm_count=info.sm_count,
        time_ns=launch.time_ns,
        host_ns=launch_overhead_ns(info),
        occupancy=occupancy,
        stages=_compute_stage_times(launch),
        shared_share=_compute_shared_share(launch),
        mma_sync_shares={
            name: share
            for name, share in find_mma_sync_shares(info).items()
            if name in counters.tensor_operations
        },
        causes=tuple(sorted(causes, key=lambda cause: -cause.remaining)),
    )


def _compute_stage_times(launch: PricedLaunch) -> dict[str, float]:
    info = launch.info
    launch_work = launch.work
    total_clocks = clock_ghz(info) * info.sm_count
    clocks = kernels.sm_clk(info, launch_work)
    busy_ns = {name: clk / total_clocks for name, clk in clocks.items() if clk or name != "tensor"}
    block_slots = min(launch.info.sm_count * launch.blocks_per_sm_limit, max(launch_work.blocks, 1))
    latency_ns = float(launch.own_ns.sum()) / block_slots
    return {
        "start": kernels.kernel_start_ns(launch_work),
        "latency": latency_ns,
        **busy_ns,
        **kernels.chip_ns(info, launch_work),
    }


def _compute_shared_share(launch: PricedLaunch) -> float:
    """Return the share of the load/store units' time that accesses to shared memory take."""
    counters = launch.work.counters
    shared_only_work = replace(
        launch.work,
        counters=replace(
            counters, accesses=tuple(access for access in counters.accesses if access.space == "shared")
        ),
    )
    total_clk, shared_clk = (
        kernels.sm_clk(launch.info, priced_work)["load/store"]
        for priced_work in (launch.work, shared_only_work)
    )
    return shared_clk / total_clk if total_clk else 0.0


LaunchChange = Callable[[PricedLaunch], PricedLaunch]


@dataclass(frozen=True)
class _CauseSearch:
    """A search for the causes of one launch's time."""

    launch: PricedLaunch
    occupancy: Occupancy
    code: str = ""

    def find_causes(self) -> list[Cause]:
        """Return the causes whose removal would make the launch noticeably faster."""
        candidates = [
            *self._find_uncoalesced_causes(),
            *self._find_rereading_causes(),
            *self._find_conflict_causes(),
            *self._find_atomic_causes(),
            *self._find_spill_causes(),
            *self._find_divergence_causes(),
            *self._find_pipe_causes(),
            *self._find_occupancy_causes(),
            *self._find_grid_causes(),
            *self._find_tail_causes(),
            *self._find_wait_causes(),
            *self._find_narrow_causes(),
        ]
        gainful_causes = [(cause, change) for cause, change in candidates if cause.gain >= MIN_GAIN]
        specific_causes = [
            change
            for cause, change in gainful_causes
            if cause.kind not in GENERIC_CAUSE_KINDS or cause.detail == "narrow"
        ]
        improved_launch = self.launch
        for change in specific_causes:
            improved_launch = change(improved_launch)
        causes = []
        for cause, change in gainful_causes:
            remaining_gain = cause.gain
            if cause.kind in GENERIC_CAUSE_KINDS and cause.detail != "narrow":
                remaining_gain = min(
                    remaining_gain, improved_launch.time_ns / change(improved_launch).time_ns
                )
            if cause.kind == "tail" and cause.figures["longest"] < UNEVEN_RATIO:
                remaining_gain /= PARTIAL_WAVE_GAIN_DIVISOR
            causes.append(replace(cause, remaining=remaining_gain))
        return [*causes, *self._find_launch_causes()]

    def _make_cause(
        self,
        kind: CauseKind,
        change: LaunchChange,
        sites: Sequence[AccessCounters] = (),
        detail: str = "",
        line: int = 0,
        **figures: float,
    ) -> tuple[Cause, LaunchChange]:
        worst_site = max(
            sites, key=lambda access: (access.sectors + access.wavefronts, access.requests), default=None
        )
        return Cause(
            kind=kind,
            before_ns=self.launch.time_ns,
            after_ns=change(self.launch).time_ns,
            detail=detail,
            line=worst_site.line if worst_site else line,
            column=worst_site.column if worst_site else 0,
            text=worst_site.text if worst_site else "",
            figures=figures,
        ), change

    # --- memory -------------------------------------------------------------------------------------
    def _find_uncoalesced_causes(self) -> list[tuple[Cause, LaunchChange]]:
        sites = [
            access
            for access in self.launch.work.accesses_of("load", "store")
            if access.space != "local" and access.sectors > access.ideal_sectors
        ]
        if not sites:
            return []
        pcs = {access.pc for access in sites}
        loads = [access for access in sites if access.kind == "load"]
        missed_sectors = sum(access.missed_sectors for access in loads)
        ideal_sectors = sum(access.ideal_sectors for access in loads)
        remaining_misses = min(1.0, ideal_sectors / missed_sectors) if missed_sectors else 1.0

        def change(launch: PricedLaunch) -> PricedLaunch:
            return _change_accesses(
                launch,
                lambda access: (
                    replace(
                        access,
                        sectors=access.ideal_sectors,
                        half_lines=-(-access.ideal_sectors // 2),
                        line_passes=0,
                        missed_sectors=min(
                            access.ideal_sectors, math.ceil(access.missed_sectors * remaining_misses)
                        )
                        if remaining_misses < 1.0
                        else min(access.missed_sectors, access.sectors),
                    )
                    if access.pc in pcs
                    else access
                ),
            )

        worst_line = _find_costliest_line(sites, lambda access: access.sectors - access.ideal_sectors)
        return [
            self._make_cause(
                "uncoalesced",
                change,
                worst_line,
                sectors=_sum_counter(worst_line, "sectors") / _sum_counter(worst_line, "requests"),
                ideal=_sum_counter(worst_line, "ideal_sectors") / _sum_counter(worst_line, "requests"),
                lines=len({access.line for access in sites}),
            )
        ]

    def _find_rereading_causes(self) -> list[tuple[Cause, LaunchChange]]:
        launch_work = self.launch.work
        loads = [
            access for access in launch_work.accesses_of("load") if access.space in ("global", "generic")
        ]
        candidates = [
            access
            for access in loads
            if access.sectors < STRIDED_SECTOR_RATIO * access.ideal_sectors
            and access.pc not in launch_work.pace.chased_load_pcs
        ]
        # Data that the whole grid reads repeatedly is also read repeatedly within well-shaped blocks.
        requested_bytes = _sum_counter(candidates, "bytes_requested")
        reuse_over_grid = math.sqrt(requested_bytes / max(launch_work.arrays.total_bytes, 1))
        sites = [
            access
            for access in candidates
            if reuse_over_grid >= 2.0 or access.missed_sectors * SECTOR_BYTES * 2 <= access.bytes_requested
        ]
        if not sites:
            return []
        pcs = {access.pc for access in sites}
        read_count_per_byte = _sum_counter(sites, "bytes_requested") / max(
            _sum_counter(sites, "missed_sectors") * SECTOR_BYTES, 1
        )
        read_count_per_byte = max(read_count_per_byte, reuse_over_grid)
        reads_saved = min(read_count_per_byte, TILE_SAVED_READS)
        tiled_share = _sum_counter(sites, "requests") / max(_sum_counter(loads, "requests"), 1)

        def change(launch: PricedLaunch) -> PricedLaunch:
            tiled_launch = _change_accesses(
                launch,
                lambda access: (
                    replace(
                        access,
                        requests=max(1, round(access.requests / reads_saved)),
                        sectors=max(1, round(access.sectors / reads_saved)),
                        missed_sectors=min(access.missed_sectors, round(access.sectors / reads_saved)),
                        missed_requests=min(
                            access.missed_requests, max(1, round(access.requests / reads_saved))
                        ),
                        half_lines=round(access.half_lines / reads_saved),
                        line_passes=round(access.line_passes / reads_saved),
                        bytes_requested=round(access.bytes_requested / reads_saved),
                    )
                    if access.pc in pcs
                    else access
                ),
            )
            # One pass of the banks each; where all lanes read one word, ptxas loads four of them at once.
            shared_accesses = [
                _move_to_shared(access, round(access.requests * remaining_share))
                for access in launch.work.accesses
                if access.pc in pcs
                for remaining_share in [
                    WORD_BYTES / MAX_LOAD_BYTES
                    if access.sectors == access.requests
                    else TILE_READ_SHARE * access.size_bytes / WORD_BYTES
                ]
            ]
            counters = tiled_launch.work.counters
            tiled_work = replace(
                tiled_launch.work, counters=replace(counters, accesses=(*counters.accesses, *shared_accesses))
            )
            memory_clk = kernels.chain_clk(launch.info, launch.work)
            shared_clk = _interpolate_chain_clk(launch.work, TILE_LOAD_CLK)
            latency_share = min(1.0, (shared_clk + (memory_clk - shared_clk) / reads_saved) / memory_clk)
            wait_share = launch.wait_share * (1.0 - tiled_share * (1.0 - latency_share))
            return replace(
                tiled_launch,
                work=tiled_work,
                wait_share=wait_share * _compute_wait_correction(launch, tiled_launch),
            )

        worst_line = _find_costliest_line(sites, lambda access: access.requests)
        return [
            self._make_cause("re-reading", change, worst_line, times=read_count_per_byte, tile=reads_saved)
        ]

    def _find_conflict_causes(self) -> list[tuple[Cause, LaunchChange]]:
        sites = [
            access
            for access in self.launch.work.counters.accesses
            if access.space == "shared" and access.bank_conflicts > 0
        ]
        if not sites:
            return []
        pcs = {access.pc for access in sites}

        def change(launch: PricedLaunch) -> PricedLaunch:
            return _change_accesses(
                launch,
                lambda access: (
                    replace(access, wavefronts=access.ideal_wavefronts) if access.pc in pcs else access
                ),
            )

        worst_line = _find_costliest_line(sites, lambda access: access.bank_conflicts)
        requests = _sum_counter(worst_line, "requests")
        return [
            self._make_cause(
                "bank conflicts",
                change,
                worst_line,
                wavefronts=_sum_counter(worst_line, "wavefronts") / requests,
                ideal=_sum_counter(worst_line, "ideal_wavefronts") / requests,
            )
        ]

    def _find_atomic_causes(self) -> list[tuple[Cause, LaunchChange]]:
        launch_work = self.launch.work
        sites = [
            access
            for access in launch_work.accesses_of("atomic")
            if access.space != "shared" and access.sectors
        ]
        if not sites:
            return []
        pcs = {access.pc for access in sites}
        resident_blocks = min(launch_work.blocks, self.launch.info.sm_count * self.launch.blocks_per_sm_limit)

        def reduce_lanes(access: AccessCounters) -> AccessCounters:
            lanes = access.bytes_requested / access.size_bytes
            word_count = max(launch_work.arrays.target_bytes(access) // access.size_bytes, 1)
            # A block adds once to each word; to a single word it adds the sums of a few warps.
            sums_per_block = launch_work.warps_per_block**0.75 if word_count == 1 else 1.0
            remaining_share = min(
                1.0,
                resident_blocks
                * sums_per_block
                * min(word_count, lanes / max(launch_work.blocks, 1))
                / lanes,
            )
            return replace(
                access,
                requests=max(1, round(access.requests * remaining_share)),
                sectors=max(1, round(access.sectors * remaining_share)),
                bytes_requested=max(access.size_bytes, round(access.bytes_requested * remaining_share)),
            )

        def change(launch: PricedLaunch) -> PricedLaunch:
            return _change_accesses(
                launch, lambda access: reduce_lanes(access) if access.pc in pcs else access
            )

        worst_line = _find_costliest_line(sites, lambda access: access.bytes_requested)
        lanes = sum(access.bytes_requested / access.size_bytes for access in worst_line)
        array_words = launch_work.arrays.target_bytes(worst_line[0]) // worst_line[0].size_bytes
        return [
            self._make_cause(
                "atomics",
                change,
                worst_line,
                lanes=lanes,
                words=max(min(array_words, lanes), 1),
                after=sum(reduce_lanes(access).bytes_requested / access.size_bytes for access in worst_line),
            )
        ]

    def _find_spill_causes(self) -> list[tuple[Cause, LaunchChange]]:
        launch_work = self.launch.work
        sites = [access for access in launch_work.accesses if access.space == "local"]
        if not sites:
            return []

        pcs = {access.pc for access in sites}
        issued_clk = float(
            launch_work.executions[: len(launch_work.pace.pipe_instructions)]
            @ launch_work.pace.pipe_instructions[:, PIPES.index("issue")]
        )
        issue_share = max(
            0.4, 1.0 - LOCAL_ACCESS_INSTRUCTIONS * _sum_counter(sites, "requests") / max(issued_clk, 1.0)
        )

        def change(launch: PricedLaunch) -> PricedLaunch:
            """Return the launch as if no registers were spilled to local memory."""
            pace = launch.work.pace
            has_spill_load = np.array([not pcs.isdisjoint(loads) for loads in pace.load_pcs])
            pipes = pace.pipe_instructions.copy()
            chain_clk = pace.chain_clk.copy()
            for name in ("issue", "alu"):
                pipes[:, PIPES.index(name)] *= issue_share
            chain_clk[has_spill_load] /= REGISTER_OVERLAP
            launch_in_registers = replace(
                launch,
                work=replace(launch.work, pace=replace(pace, pipe_instructions=pipes, chain_clk=chain_clk)),
            )
            launch_without_traffic = _change_accesses(
                launch_in_registers,
                lambda access: _remove_sectors(replace(access, requests=1)) if access.pc in pcs else access,
            )
            # Values that must be indexed stay in memory; assume that most of them are in shared memory.
            shared_accesses = [
                _move_to_shared(access, round(INDEXED_ARRAY_SHARE * access.requests)) for access in sites
            ]
            counters = launch_without_traffic.work.counters
            return replace(
                launch_without_traffic,
                work=replace(
                    launch_without_traffic.work,
                    counters=replace(counters, accesses=(*counters.accesses, *shared_accesses)),
                ),
            )

        worst_line = _find_costliest_line(sites, lambda access: access.requests)
        return [
            self._make_cause(
                "spills",
                change,
                worst_line,
                requests=_sum_counter(sites, "requests"),
                size_bytes=_sum_counter(sites, "sectors") * SECTOR_BYTES,
            )
        ]

    # --- instructions -------------------------------------------------------------------------------
    def _find_divergence_causes(self) -> list[tuple[Cause, LaunchChange]]:
        launch_work = self.launch.work
        full_executions = -(-launch_work.lane_executions // WARP_SIZE)
        if not (full_executions < launch_work.executions).any():
            return []

        def change(launch: PricedLaunch) -> PricedLaunch:
            changed_work = launch.work
            executions = np.minimum(full_executions, changed_work.executions)
            issued_clk = changed_work.pace.pipe_instructions[:, PIPES.index("issue")]
            issued_before_clk = float(changed_work.executions[: len(issued_clk)] @ issued_clk)
            issued_after_clk = float(executions[: len(issued_clk)] @ issued_clk)
            instructions = changed_work.warp_instructions * (issued_after_clk / max(issued_before_clk, 1.0))
            # The saved instructions are taken from the busiest warp first.
            longest_warp = changed_work.longest_warp_instructions - (
                changed_work.warp_instructions - instructions
            )
            return replace(
                launch,
                work=replace(
                    changed_work,
                    executions=executions,
                    warp_instructions=np.ceil(instructions).astype(np.int64),
                    longest_warp_instructions=np.maximum(
                        longest_warp, instructions / changed_work.warps_per_block
                    ).astype(np.int64),
                ),
            )

        counters = launch_work.counters
        idle_lanes = {
            line: WARP_SIZE * warp_instructions - counters.line_thread_instructions.get(line, 0)
            for line, warp_instructions in counters.line_warp_instructions.items()
        }
        worst_branch = max(
            (b for b in counters.branches if b.divergent), key=lambda b: b.divergent, default=None
        )
        line = (
            worst_branch.line
            if worst_branch
            else max(idle_lanes, key=lambda line_number: idle_lanes[line_number])
        )
        partial_warp_lanes = math.prod(counters.block) % WARP_SIZE
        return [
            self._make_cause(
                "divergence",
                change,
                line=line,
                lanes=WARP_SIZE * counters.lane_efficiency,
                divergent=counters.divergent_branches,
                partial=partial_warp_lanes,
            )
        ]

    def _find_pipe_causes(self) -> list[tuple[Cause, LaunchChange]]:
        launch_work = self.launch.work
        clk_by_pipe = pipe_clk(self.launch.info)
        pipe_instructions = (
            launch_work.executions[: len(launch_work.pace.pipe_instructions)].astype(np.float64)
            @ launch_work.pace.pipe_instructions
        )
        counters = launch_work.counters
        causes = []
        worst_line = max(
            counters.line_warp_instructions,
            key=lambda line_number: counters.line_warp_instructions[line_number],
            default=0,
        )
        issued_clk = float(pipe_instructions[PIPES.index("issue")])
        if pipe_instructions[PIPES.index("fp64")]:
            conversion_share = counters.opcode_warp_instructions.get("cvt", 0) / max(
                float(pipe_instructions[PIPES.index("xu")]), 1.0
            )
            remaining_shares = {"fp64": 0.0, "xu": max(0.0, 1.0 - conversion_share)}
            causes.append(
                self._make_cause(
                    "compute",
                    lambda launch: _change_pipes(launch, clk_by_pipe, remaining_shares, "fp64"),
                    detail="fp64",
                    line=worst_line,
                    operations=counters.flops.get("f64", 0),
                    rate=clk_by_pipe["fp64"] / clk_by_pipe["fma"],
                )
            )
        if divisions := sum(counters.opcode_warp_instructions.get(name, 0) for name in ("div", "rem")):
            work_share = max(0.05, 1.0 - DIVISION_INSTRUCTIONS * divisions / max(issued_clk, 1.0))
            remaining_issue = {"xu": 0.0} | dict.fromkeys(("issue", "imad", "alu"), work_share)
            causes.append(
                self._make_cause(
                    "compute",
                    lambda launch: _change_pipes(launch, clk_by_pipe, remaining_issue),
                    detail="division",
                    line=worst_line,
                    operations=WARP_SIZE * divisions,
                )
            )
        instructions_by_line = counters.line_warp_instructions
        source_lines = self.code.split("\n")
        slow_lines = [
            line_number
            for line_number in instructions_by_line
            if 0 < line_number <= len(source_lines)
            and _ACCURATE_FUNCTION_PATTERN.search(source_lines[line_number - 1])
        ]
        work_share = sum(instructions_by_line[line_number] for line_number in slow_lines) / max(
            sum(instructions_by_line.values()), 1
        )
        if slow_lines:
            remaining_issue = dict.fromkeys(
                ("issue", "fma", "imad", "alu", "uniform"), 1.0 - INTRINSIC_SAVED_SHARE * work_share
            )
            worst_line = max(slow_lines, key=lambda line_number: instructions_by_line[line_number])
            causes.append(
                self._make_cause(
                    "compute",
                    lambda launch: _change_pipes(launch, clk_by_pipe, remaining_issue),
                    detail="functions",
                    line=worst_line,
                    share=work_share,
                )
            )
        return causes

    # --- placement of the grid on the device --------------------------------------------------------------
    def _find_occupancy_causes(self) -> list[tuple[Cause, LaunchChange]]:
        launch = self.launch
        blocks_by_limit = self.occupancy.blocks_by_limit
        warps = launch.work.warps_per_block
        # Blocks of another size that would fill the SM, if the grid has as many.
        blocks_that_fit = min(
            self.occupancy.max_warps_per_sm // warps, -(-launch.work.blocks // launch.info.sm_count)
        )
        if blocks_that_fit <= launch.blocks_per_sm_limit:
            return []
        limit_name = min(blocks_by_limit, key=lambda name: blocks_by_limit[name])
        merged_blocks = (
            max(1.0, USUAL_BLOCK_THREADS / launch.block_threads) if limit_name == "blocks" else 1.0
        )
        return [
            self._make_cause(
                "occupancy",
                lambda launch: replace(
                    launch, blocks_per_sm_limit=blocks_that_fit, merged_blocks=merged_blocks
                ),
                detail=limit_name,
                warps=self.occupancy.warps_per_sm,
                room=self.occupancy.max_warps_per_sm,
                registers=self.occupancy.registers_per_thread,
                size_bytes=self.occupancy.shared_bytes,
                threads=launch.block_threads,
            )
        ]

    def _find_grid_causes(self) -> list[tuple[Cause, LaunchChange]]:
        launch = self.launch
        warps = launch.work.blocks * launch.work.warps_per_block
        warp_slots = launch.info.sm_count * self.occupancy.max_warps_per_sm
        pieces_per_block = min(
            0.8 * warp_slots / warps,
            launch.work.counters.warp_instructions / launch.work.warps / MIN_WARP_INSTRUCTIONS,
        )
        # A chain of addresses cannot be split.
        if (
            launch.work.blocks >= launch.info.sm_count
            or pieces_per_block <= 1.0
            or _compute_chain_shares(launch.work)[0]
        ):
            return []
        return [
            self._make_cause(
                "grid",
                lambda launch: replace(launch, pieces_per_block=pieces_per_block),
                blocks=launch.work.blocks,
                sms=launch.info.sm_count,
                split=pieces_per_block,
            )
        ]

    def _find_tail_causes(self) -> list[tuple[Cause, LaunchChange]]:
        launch = self.launch
        if launch.work.blocks < 2:
            return []
        durations = launch.durations_ns
        waves = launch.work.blocks / (launch.info.sm_count * launch.blocks_per_sm_limit)
        return [
            self._make_cause(
                "tail",
                lambda launch: replace(launch, all_slots_busy=True),
                waves=waves,
                longest=float(durations.max() / durations.mean()),
                blocks=launch.work.blocks,
            )
        ]

    def _find_wait_causes(self) -> list[tuple[Cause, LaunchChange]]:
        launch_work = self.launch.work
        is_chained, memory_share = _compute_chain_shares(launch_work)
        cause_kind: CauseKind = "in flight" if memory_share >= 0.5 and not is_chained else "latency"
        loads = list(launch_work.accesses_of("load")) if memory_share >= 0.5 else []
        wait_line = 0
        if not loads:
            instructions_by_line = launch_work.counters.line_warp_instructions
            wait_line = max(
                instructions_by_line, key=lambda line_number: instructions_by_line[line_number], default=0
            )
        return [
            self._make_cause(
                cause_kind,
                lambda launch: replace(launch, wait_share=launch.wait_share / OVERLAPPED_OPERATIONS),
                _find_costliest_line(loads, lambda access: access.requests) if loads else (),
                line=wait_line,
                detail="memory" if memory_share >= 0.5 else "arithmetic",
                warps=min(self.occupancy.blocks_per_sm, -(-launch_work.blocks // self.launch.info.sm_count))
                * launch_work.warps_per_block,
                memory=memory_share,
            )
        ]

    def _find_narrow_causes(self) -> list[tuple[Cause, LaunchChange]]:
        """Return the cause "lanes move only one or two bytes per access", if it applies."""
        launch_work = self.launch.work
        sites = [access for access in launch_work.accesses_of("load", "store") if access.space != "local"]
        moved_bytes = _sum_counter(sites, "bytes_requested")
        lanes = sum(access.bytes_requested / access.size_bytes for access in sites)
        if not sites or moved_bytes >= WORD_BYTES * lanes:
            return []
        width_factor = WORD_BYTES * lanes / moved_bytes

        def change(launch: PricedLaunch) -> PricedLaunch:
            launch_with_fewer_requests = _change_accesses(
                launch, lambda access: replace(access, requests=max(1, round(access.requests / width_factor)))
            )
            widened_work = replace(
                launch_with_fewer_requests.work, executions=-(-launch.work.executions // round(width_factor))
            )
            return replace(
                launch_with_fewer_requests,
                work=widened_work,
                merged_blocks=launch.merged_blocks * width_factor,
            )

        narrow_line = _find_costliest_line(
            sites, lambda access: access.requests * (access.size_bytes < WORD_BYTES)
        )
        return [
            self._make_cause(
                "in flight",
                change,
                narrow_line,
                detail="narrow",
                size_bytes=moved_bytes / lanes,
                wider=width_factor,
            )
        ]

    def _find_launch_causes(self) -> list[Cause]:
        host_ns = launch_overhead_ns(self.launch.info)
        device_ns = self.launch.time_ns
        if host_ns <= device_ns:
            return []
        gain = host_ns / (device_ns + GRAPH_NODE_NS)
        return [
            Cause(
                kind="launch",
                before_ns=host_ns,
                after_ns=device_ns + GRAPH_NODE_NS,
                remaining=gain / OUTSIDE_KERNEL_GAIN_DIVISOR,
            )
        ]


def _sum_counter(sites: Iterable[AccessCounters], counter: str) -> int:
    """Return the sum of one counter of several accesses."""
    return sum(int(getattr(access, counter)) for access in sites)


def _find_costliest_line(
    sites: Sequence[AccessCounters], compute_cost: Callable[[AccessCounters], float]
) -> list[AccessCounters]:
    """Return the accesses of the source line whose accesses have the highest total cost."""
    cost_by_line: dict[int, float] = {}
    for access in sites:
        cost_by_line[access.line] = cost_by_line.get(access.line, 0.0) + compute_cost(access)
    worst_line = max(cost_by_line, key=lambda line: cost_by_line[line])
    return [access for access in sites if access.line == worst_line]


def _change_accesses(
    launch: PricedLaunch, change: Callable[[AccessCounters], AccessCounters]
) -> PricedLaunch:
    """Return the launch with each of its accesses changed by a function."""
    counters = launch.work.counters
    accesses = tuple(change(access) for access in counters.accesses)
    return replace(launch, work=replace(launch.work, counters=replace(counters, accesses=accesses)))


def _move_to_shared(access: AccessCounters, wavefronts: int) -> AccessCounters:
    """Return an access to shared memory with this many wavefronts that replaces another access."""
    return replace(
        _remove_sectors(access),
        pc=-1 - access.pc,
        space="shared",
        wavefronts=wavefronts,
        ideal_wavefronts=wavefronts,
    )


def _remove_sectors(access: AccessCounters) -> AccessCounters:
    """Return an access that causes no traffic to the caches."""
    return replace(access, sectors=0, missed_sectors=0, half_lines=0, line_passes=0, missed_requests=0)


def _change_pipes(
    launch: PricedLaunch,
    pipe_clk_by_name: dict[str, float],
    pipe_shares: dict[str, float],
    pipe_moved_to_fma: str = "",
) -> PricedLaunch:
    """Return the launch with less work on some pipes.

    `pipe_shares` maps a pipe to the remaining share of its work. The work of the pipe `pipe_moved_to_fma` is
    added to the FP32 pipe.
    """
    pace = launch.work.pace
    pipes = pace.pipe_instructions.copy()
    if pipe_moved_to_fma:
        pipes[:, PIPES.index("fma")] += pipes[:, PIPES.index(pipe_moved_to_fma)]
    for name, work_share in pipe_shares.items():
        pipes[:, PIPES.index(name)] *= work_share
    clk_by_pipe = np.array([4.0 * pipe_clk_by_name[name] for name in PIPES])
    pipe_before_clk = (pace.pipe_instructions * clk_by_pipe).max(axis=1)
    pipe_after_clk = (pipes * clk_by_pipe).max(axis=1)
    remaining_share = np.where(
        pipe_before_clk > 0, np.maximum(pipe_after_clk / np.maximum(pipe_before_clk, 1e-9), 0.1), 1.0
    )
    chain_clk = pace.chain_clk * remaining_share[:, None]
    return replace(
        launch, work=replace(launch.work, pace=replace(pace, pipe_instructions=pipes, chain_clk=chain_clk))
    )


def _interpolate_chain_clk(work: KernelWork, load_clk: float) -> float:
    """Return the clocks that a warp needs when it runs alone and every load takes `load_clk` clocks."""
    total_clk = 0.0
    for piece_index in np.flatnonzero(work.executions[: len(work.pace.load_pcs)]).tolist():
        piece_clk = float(np.interp(load_clk, LATENCIES, work.pace.chain_clk[piece_index]))
        total_clk += float(work.executions[piece_index]) * piece_clk
    return total_clk / work.warps


def _compute_wait_correction(old_launch: PricedLaunch, new_launch: PricedLaunch) -> float:
    """Return the factor that keeps a block's own time the same although its accesses were changed."""
    return kernels.chain_clk(old_launch.info, old_launch.work) / max(
        kernels.chain_clk(new_launch.info, new_launch.work), 1e-9
    )


def _compute_chain_shares(work: KernelWork) -> tuple[bool, float]:
    """Return whether loads depend on other loads, and the share of a warp's time that it waits for memory."""
    pace = work.pace
    waited_clk = 0.0
    own_clk = 0.0
    dependent_clk = 0.0
    for piece_index in np.flatnonzero(work.executions[: len(pace.load_pcs)]).tolist():
        executions = float(work.executions[piece_index])
        clk = pace.chain_clk[piece_index]
        wait_share = executions * float(clk[2] - clk[0])
        own_clk += executions * float(clk[2])
        waited_clk += wait_share
        if pace.load_pcs[piece_index]:
            dependent_clk += (
                wait_share
                * len(pace.chased_load_pcs.intersection(pace.load_pcs[piece_index]))
                / len(pace.load_pcs[piece_index])
            )
    return dependent_clk > 0.5 * waited_clk > 0.0, waited_clk / own_clk if own_clk else 0.0
