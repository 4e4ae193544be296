"""Conversion of the buffers of counters to the records of a launch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir import layout
from virtualgpu.engine.lower.codegen import GeneratedKernel
from virtualgpu.engine.lower.ops import async_ops, memory_ops
from virtualgpu.engine.observe.flops import count_operations, count_tensor_operations
from virtualgpu.records import AccessCounters, BranchCounters, Dim3, KernelCounters, Provenance
from virtualgpu.records.access import Access, Rule

Name = TypeVar("Name")
SPACES = ("global", "shared", "local", "const", "generic")


@dataclass(slots=True)
class CounterAmounts(Generic[Name]):
    """A table of how much one execution of each piece of code increases each counter."""

    amounts: dict[Name, Counter[int]] = field(default_factory=dict)
    _columns: tuple[npt.NDArray[np.int64], ...] = ()

    def add(self, name: Name, piece: int, amount: int = 1) -> None:
        """Increase the table entry of the counter `name` for a piece of code by ``amount``."""
        self.amounts.setdefault(name, Counter())[piece] += amount

    def compute_totals(self, executions: npt.NDArray[np.int64]) -> dict[Name, int]:
        """Return the value of each counter, computed from how often each piece of code was executed."""
        if not self.amounts:
            return {}
        if not self._columns:
            block_amounts = [
                block_amount for blocks in self.amounts.values() for block_amount in blocks.items()
            ]
            block, amount = np.array(block_amounts, np.int64).T
            entry_counts = [len(blocks) for blocks in self.amounts.values()]
            self._columns = block, amount, np.cumsum([0, *entry_counts[:-1]])
        block, amount, first_entries = self._columns
        return dict(
            zip(
                self.amounts, np.add.reduceat(executions[block] * amount, first_entries).tolist(), strict=True
            )
        )


@dataclass(frozen=True, slots=True)
class KernelAmounts:
    """The tables of how much each basic block of a kernel increases the kernel's counters."""

    sizes: npt.NDArray[np.int64]
    lines: CounterAmounts[int] = field(default_factory=CounterAmounts)
    opcodes: CounterAmounts[str] = field(default_factory=CounterAmounts)
    flops: CounterAmounts[str] = field(default_factory=CounterAmounts)
    tensor_operations: CounterAmounts[str] = field(default_factory=CounterAmounts)


def compute_kernel_amounts(kernel: GeneratedKernel) -> KernelAmounts:
    """Return the tables of how much each basic block of a kernel increases its counters. The tables are
    computed only once.
    """
    blocks = kernel.tables.blocks
    amounts = KernelAmounts(np.array([block.end - block.first for _, block in blocks], np.int64))
    functions = [plan.function for plan in kernel.plans]
    for block_index, (function_index, block) in enumerate(blocks):
        for instruction in functions[function_index].instructions[block.first : block.end]:
            amounts.lines.add(instruction.line, block_index)
            amounts.opcodes.add(instruction.root, block_index)
            for name, amount in async_ops.find_group_changes(instruction).items():
                amounts.opcodes.add(name, block_index, amount)
            number_type, operations_per_lane = count_operations(instruction)
            if number_type:
                amounts.flops.add(number_type, block_index, operations_per_lane)
            tensor_format, operations_per_lane = count_tensor_operations(instruction)
            if tensor_format:
                amounts.tensor_operations.add(tensor_format, block_index, operations_per_lane)
    return amounts


def make_counters(
    kernel: GeneratedKernel,
    kernel_amounts: KernelAmounts,
    title: str,
    provenance: Provenance,
    grid: Dim3,
    block: Dim3,
    shared_bytes: int,
    accesses: npt.NDArray[np.int64],
    branches: npt.NDArray[np.int64],
    blocks: npt.NDArray[np.int64],
    longest_warp: int = 0,
) -> KernelCounters:
    """Return the counters of a kernel launch, computed from the counts of the workers."""
    block_executions = blocks[:, 0]
    lane_executions = blocks[:, 1]
    access_counters = []
    for instruction, access_counts in sum_counters_by_source(kernel.tables.accesses, accesses):
        requests, sectors, wavefronts, ideal_wavefronts, active_lanes, *cache_counts = access_counts
        missed_sectors, half_lines, line_passes, missed_requests = cache_counts
        access_bytes = memory_ops.size_of(instruction)
        access_counters.append(
            AccessCounters(
                pc=source_index(instruction),
                line=instruction.line,
                text=instruction.text,
                space=memory_ops.space_of(instruction),  # type: ignore[arg-type]
                kind=memory_ops.kind_of(instruction),  # type: ignore[arg-type]
                size_bytes=access_bytes,
                requests=requests,
                sectors=sectors,
                wavefronts=wavefronts,
                ideal_wavefronts=ideal_wavefronts,
                bytes_requested=active_lanes * access_bytes,
                column=instruction.column,
                missed_sectors=missed_sectors,
                half_lines=half_lines,
                line_passes=line_passes,
                missed_requests=missed_requests,
            )
        )
    branch_counters = [
        BranchCounters(
            source_index(instruction),
            instruction.line,
            instruction.text,
            executed_count,
            divergent_count,
            instruction.column,
        )
        for instruction, (executed_count, divergent_count) in sum_counters_by_source(
            kernel.tables.branches, branches
        )
    ]
    return KernelCounters(
        provenance=provenance,
        kernel_name=title,
        grid=grid,
        block=block,
        shared_bytes=shared_bytes,
        warp_instructions=int(kernel_amounts.sizes @ block_executions),
        thread_instructions=int(kernel_amounts.sizes @ lane_executions),
        accesses=tuple(access_counters),
        branches=tuple(branch_counters),
        line_warp_instructions=kernel_amounts.lines.compute_totals(block_executions),
        line_thread_instructions=kernel_amounts.lines.compute_totals(lane_executions),
        longest_warp_instructions=longest_warp,
        opcode_warp_instructions=kernel_amounts.opcodes.compute_totals(block_executions),
        flops=_drop_zeros(kernel_amounts.flops.compute_totals(lane_executions)),
        tensor_operations=_drop_zeros(kernel_amounts.tensor_operations.compute_totals(lane_executions)),
    )


def _drop_zeros(totals: dict[str, int]) -> dict[str, int]:
    """Return the counters that are not 0."""
    return {name: count for name, count in totals.items() if count}


def source_index(instruction: ir.Instruction) -> int:
    """Return an instruction's index in the function that contained it before inlining."""
    return instruction.pc if instruction.origin is None else instruction.origin[1]


def sum_counters_by_source(
    sites: Sequence[tuple[int, ir.Instruction]], copy_rows: npt.NDArray[np.int64]
) -> list[tuple[ir.Instruction, list[int]]]:
    """Return the sums of the counters over all inlined copies of each instruction.

    Each row of `copy_rows` contains the counters of one inlined copy.
    """
    source_sums: list[tuple[ir.Instruction, npt.NDArray[np.int64]]] = []
    for source_index, (_, instruction), copy_counts in zip(
        assign_source_numbers(sites), sites, copy_rows, strict=True
    ):
        if source_index == len(source_sums):
            source_sums.append((instruction, np.zeros_like(copy_counts)))
        source_sums[source_index] = source_sums[source_index][0], source_sums[source_index][1] + copy_counts
    return [(instruction, copy_counts.tolist()) for instruction, copy_counts in source_sums]


def assign_source_numbers(sites: Sequence[tuple[int, ir.Instruction]]) -> list[int]:
    """Return the number of the original instruction of each counted instruction.

    Original instructions are numbered in the order in which they appear. An instruction that accesses memory
    several times has several numbers, which its copies share.
    """
    occurrence_counts: Counter[tuple[int, int]] = Counter()
    source_numbers: dict[tuple[object, ...], int] = {}
    site_numbers = []
    for function_index, instruction in sites:
        occurrence_counts[function_index, instruction.pc] += 1
        site_numbers.append(
            source_numbers.setdefault(
                (
                    instruction.origin or (function_index, instruction.pc),
                    occurrence_counts[function_index, instruction.pc],
                ),
                len(source_numbers),
            )
        )
    return site_numbers


def compute_access_cost(
    space: str, access_bytes: int, addresses: npt.NDArray[np.int64], mask: int, rule: Rule = "load"
) -> tuple[int, int]:
    """Return the number of sectors and of shared-memory wavefronts that one memory access requires."""
    if space == "local":
        rule = "load"  # no two lanes share an address there
        addresses = interleave_local_offsets(addresses, access_bytes)
    is_active = mask >> np.arange(layout.LANES) & 1
    access = Access(tuple(np.where(is_active, addresses, -1).tolist()), access_bytes, rule=rule)
    return (0, access.banks().wavefronts) if space == "shared" else (access.memory().sectors, 0)


def interleave_local_offsets(offsets: npt.NDArray[np.int64], access_bytes: int) -> npt.NDArray[np.int64]:
    """Convert each lane's offset in local memory to an address in the interleaved layout."""
    return offsets // 4 * 128 + np.arange(layout.LANES) * max(access_bytes, 4)


def to_linear_index(index: Dim3, shape: Dim3) -> int:
    """Return the linear number of a block in its grid. The x coordinate changes fastest."""
    return index[0] + shape[0] * (index[1] + shape[1] * index[2])


def from_linear_index(number: int, shape: Dim3) -> Dim3:
    """Return the index of a block in its grid from its linear number. This function is the inverse of
    `to_linear_index`.
    """
    return number % shape[0], number // shape[0] % shape[1], number // (shape[0] * shape[1])


def sum_counters(
    worker_counters: Sequence[npt.NDArray[np.int64]], stride_bytes: int
) -> npt.NDArray[np.int64]:
    """Return the counters summed over all workers, with one row per instruction."""
    return np.sum(worker_counters, axis=0, dtype=np.int64).reshape(-1, stride_bytes // 8)
