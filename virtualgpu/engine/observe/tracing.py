"""Conversion of a traced block's raw data to records, one column at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.compile.ptx.inline import strip_copy_mark
from virtualgpu.engine.ir import layout
from virtualgpu.engine.lower.codegen import GeneratedKernel
from virtualgpu.engine.lower.ops import memory_ops
from virtualgpu.engine.observe import register_types, results
from virtualgpu.engine.observe.accesses import find_shared_accesses
from virtualgpu.engine.observe.trace_buffers import TraceBuffers, TraceRequest
from virtualgpu.engine.run.launch import RunningLaunch
from virtualgpu.records import BlockTrace, Provenance, WarpTrace
from virtualgpu.records.warp.columns import SharedWrites, StepDetail

Ints = npt.NDArray[np.int64]
_TAG_SHIFT = 56
_SHARED, _LOCAL, _GENERIC = (results.SPACES.index(s) for s in ("shared", "local", "generic"))
# The cost of an access depends only on its addresses' positions within 32 banks of 4 bytes.
_BANK_PERIOD_BYTES = 128
_STOPPED_NOTE = (
    "The kernel was stopped because this block did not end. Look for a loop that cannot end. Arrays contain "
    "the values written before the stop. If the kernel only runs long, increase watchdog_s in "
    "gl.use_device()."
)


@dataclass(frozen=True, slots=True)
class KernelListing:
    """All instructions of a kernel and of the functions that it calls, with their properties."""

    code: tuple[ir.Instruction, ...]
    first_positions: Ints
    registers: tuple[tuple[str, ...], ...]
    register_types: tuple[tuple[str, ...], ...]
    stored_types: tuple[str, ...]
    rules: tuple[Any, ...]
    space_codes: npt.NDArray[np.int8]
    is_store: npt.NDArray[np.bool_]
    size_bytes: npt.NDArray[np.int16]
    scheduling_order: npt.NDArray[np.int32]
    loops: npt.NDArray[np.int32]


def make_listing(kernel: GeneratedKernel) -> KernelListing:
    """Return the instructions of a kernel and of the functions that it calls, with their properties."""
    functions = [plan.function for plan in kernel.plans]
    function_starts = np.cumsum([0, *(len(f.instructions) for f in functions)])
    instructions = tuple(instruction for f in functions for instruction in f.instructions)
    registers: list[tuple[str, ...]] = []
    type_names: list[tuple[str, ...]] = []
    stored_types: list[str] = []
    for function in functions:
        type_by_register = register_types.infer_register_types(function)
        for instruction in function.instructions:
            defined_names = tuple(cfg.find_definitions_and_uses(instruction)[0])
            registers.append(tuple(strip_copy_mark(name) for name in defined_names))
            type_names.append(tuple(type_by_register.get(name, "") for name in defined_names))
            stored_types.append(_find_stored_type(instruction, type_by_register))
    is_access = [memory_ops.is_counted_access(instruction) for instruction in instructions]
    space_codes = [
        results.SPACES.index(memory_ops.space_of(instruction)) if a else -1
        for instruction, a in zip(instructions, is_access, strict=True)
    ]
    order, loops = _find_scheduling_order(kernel, function_starts)
    return KernelListing(
        instructions,
        function_starts,
        tuple(registers),
        tuple(type_names),
        tuple(stored_types),
        tuple(memory_ops.rule_of(f, instruction) for f in functions for instruction in f.instructions),
        np.array(space_codes, np.int8),
        np.array(
            [
                a and memory_ops.kind_of(instruction) != "load"
                for instruction, a in zip(instructions, is_access, strict=True)
            ],
            np.bool_,
        ),
        np.array(
            [
                memory_ops.size_of(instruction) if a else 0
                for instruction, a in zip(instructions, is_access, strict=True)
            ],
            np.int16,
        ),
        order,
        loops,
    )


def _find_stored_type(instruction: ir.Instruction, register_types: dict[str, str]) -> str:
    """Return the type in which a stored value is shown: that of its register, if the width is the same."""
    if instruction.root not in ("st", "atom", "red"):
        return ""
    operand = instruction.operands[-1]
    while isinstance(operand, ir.Vector):
        operand = next((register for register in operand.items if register is not None), None)
    register_type = register_types.get(operand.name, "") if isinstance(operand, ir.Register) else ""
    if register_type and instruction.type.startswith("b") and register_type[1:] == instruction.type[1:]:
        return register_type
    return instruction.type


def _find_scheduling_order(
    kernel: GeneratedKernel, first_positions: Ints
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the position of every instruction in scheduling order, and the positions of each loop.

    Blocks are numbered so that a loop is contiguous after its head (`virtualgpu.compile.ptx.flow.cfg`).
    """
    position_in_order = np.zeros(int(first_positions[-1]), np.int32)
    loop_ranges: list[tuple[int, int]] = []
    for plan, first_position in zip(kernel.plans, first_positions.tolist(), strict=False):
        block_starts = []
        next_position = first_position
        for block in plan.control_flow.blocks:
            block_starts.append(next_position)
            position_in_order[first_position + block.first : first_position + block.end] = np.arange(
                next_position, next_position + block.end - block.first
            )
            next_position += block.end - block.first
        last_blocks: dict[int, int] = {}
        for block in reversed(plan.control_flow.blocks):
            for successor in block.successors:
                if successor <= block.number:
                    last_blocks[successor] = max(last_blocks.get(successor, 0), block.number)
        for loop_head in sorted(
            last_blocks, reverse=True
        ):  # a loop that ends with an inner one contains all of it
            last_blocks[loop_head] = max(
                [
                    last_blocks[loop_head],
                    *(
                        last_blocks[inner_head]
                        for inner_head in last_blocks
                        if loop_head < inner_head <= last_blocks[loop_head]
                    ),
                ]
            )
        for loop_head, last_block in sorted(last_blocks.items()):
            block = plan.control_flow.blocks[last_block]
            loop_ranges.append(
                (block_starts[loop_head], block_starts[last_block] + block.end - block.first - 1)
            )
    return position_in_order, np.array(loop_ranges, np.int32).reshape(-1, 2)


def make_block_trace(launch: RunningLaunch, provenance: Provenance, request: TraceRequest) -> BlockTrace:
    """Return the recorded steps of all warps of one block.

    The result omits warps for which only stores to shared memory were recorded.
    """
    raw_trace = launch.trace
    assert raw_trace is not None
    kernel_listing = make_listing(launch.kernel)
    sorted_trace_rows = (
        raw_trace.rows[np.argsort(raw_trace.rows["step"], kind="stable")]
        if _is_unsorted(raw_trace.rows)
        else raw_trace.rows
    )
    instruction_index = kernel_listing.first_positions[raw_trace.steps["function"]] + raw_trace.steps["pc"]
    shared_writes = _make_shared_writes(raw_trace, sorted_trace_rows, instruction_index, kernel_listing)
    stop_note = _STOPPED_NOTE if raw_trace.is_stopped else ""
    traced_warps = range(launch.warps) if request.is_whole_block else (request.warp_index,)
    warps = tuple(
        _make_warp_trace(
            launch,
            kernel_listing,
            raw_trace,
            sorted_trace_rows,
            instruction_index,
            warp,
            provenance,
            request,
            shared_writes,
            stop_note,
        )
        for warp in traced_warps
    )
    return BlockTrace(
        provenance=provenance,
        kernel_name=launch.packed_launch.title,
        grid=launch.packed_launch.grid,
        block=launch.packed_launch.block,
        block_index=request.block_index,
        warps=warps,
        shared=shared_writes,
        steps=len(raw_trace.steps),
        accesses=find_shared_accesses(launch) if request.is_whole_block else None,
        truncated=raw_trace.truncated,
        note=stop_note,
    )


def _is_unsorted(rows: npt.NDArray[Any]) -> bool:
    return bool((np.diff(rows["step"]) < 0).any())


def _find_written_rows(rows: npt.NDArray[Any]) -> tuple[Ints, Ints]:
    """Return the indices of rows with bits written to memory, and their width in bytes.

    The row before each of them contains the address.
    """
    row_kinds = rows["kind"]
    written_rows = np.flatnonzero((row_kinds > layout.ROW_WRITTEN) & (row_kinds < layout.ROW_REGISTER))
    return written_rows, (row_kinds[written_rows] - layout.ROW_WRITTEN).astype(np.int64)


def _lanes_of_masks(masks: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    return (masks[:, None] >> np.arange(layout.LANES, dtype=np.uint32) & 1).astype(np.bool_)


def _make_shared_writes(
    raw_trace: TraceBuffers, rows: npt.NDArray[Any], instruction_index: Ints, kernel_listing: KernelListing
) -> SharedWrites:
    value_rows, width_bytes = _find_written_rows(rows)
    offset = (rows["lanes"][value_rows - 1] - np.uint64(raw_trace.shared_address)).view(np.int64)
    lanes = _lanes_of_masks(rows["mask"][value_rows]) & (offset >= 0) & (offset < raw_trace.shared_bytes)
    has_writes = lanes.any(axis=1)
    value_rows = value_rows[has_writes]
    offset = offset[has_writes]
    lanes = lanes[has_writes]
    step_index = rows["step"][value_rows]
    type_names = sorted(set(kernel_listing.stored_types))
    type_codes = np.array(
        [type_names.index(stored_type) for stored_type in kernel_listing.stored_types], np.int16
    )
    return SharedWrites(
        size_bytes=raw_trace.shared_bytes,
        sequence=step_index.astype(np.int64),
        warp=raw_trace.steps["warp"][step_index].astype(np.int16),
        mask=np.packbits(lanes, axis=1, bitorder="little").view("<u4").ravel().astype(np.uint32),
        offset=np.where(lanes, offset, -1).astype(np.int32),
        width_bytes=width_bytes[has_writes].astype(np.int8),
        value=np.where(lanes, rows["lanes"][value_rows], 0),
        type_index=type_codes[instruction_index[step_index]],
        types=tuple(type_names),
        final=raw_trace.shared,
    )


def _make_warp_trace(
    launch: RunningLaunch,
    kernel_listing: KernelListing,
    raw_trace: TraceBuffers,
    trace_rows: npt.NDArray[Any],
    all_instruction_indices: Ints,
    warp: int,
    provenance: Provenance,
    request: TraceRequest,
    shared_writes: SharedWrites,
    stop_note: str,
) -> WarpTrace:
    step_indices = np.flatnonzero(raw_trace.steps["warp"] == warp)
    step_records = raw_trace.steps[step_indices]
    instruction_index = all_instruction_indices[step_indices]
    step_count = len(step_records)
    step_of = np.full(len(raw_trace.steps), -1, np.int64)
    step_of[step_indices] = np.arange(step_count)
    step_of_row = step_of[trace_rows["step"]]
    row_kinds = trace_rows["kind"]
    space = kernel_listing.space_codes[instruction_index].astype(np.int8)
    address = np.full((step_count, layout.LANES), -1, np.int64)
    address_rows = np.flatnonzero((row_kinds == layout.ROW_ADDRESS) & (step_of_row >= 0))
    address_rows = address_rows[space[step_of_row[address_rows]] >= 0]
    address[step_of_row[address_rows]] = np.where(
        _lanes_of_masks(trace_rows["mask"][address_rows]),
        trace_rows["lanes"][address_rows].view(np.int64),
        -1,
    )
    _resolve_generic_addresses(space, address, step_records["executed"])
    sectors, wavefronts = _compute_access_costs(
        kernel_listing, instruction_index, space, address, step_records["executed"]
    )
    lane_values = np.zeros((step_count, layout.LANES), np.uint64)
    value_rows = np.flatnonzero((row_kinds == layout.ROW_REGISTER) & (step_of_row >= 0))
    lane_values[step_of_row[value_rows]] = np.where(
        _lanes_of_masks(trace_rows["mask"][value_rows]), trace_rows["lanes"][value_rows], 0
    )
    detail = _make_step_detail(
        kernel_listing, step_records, step_indices, instruction_index, trace_rows, step_of_row, shared_writes
    )
    line_numbers = np.array([instruction.line for instruction in kernel_listing.code], np.int32)
    column_numbers = np.array([instruction.column for instruction in kernel_listing.code], np.int32)
    return WarpTrace(
        provenance=provenance,
        kernel_name=launch.packed_launch.title,
        code=launch.source,
        grid=launch.packed_launch.grid,
        block=launch.packed_launch.block,
        block_index=request.block_index,
        warp_index=warp,
        granularity="instruction",
        instruction=tuple(instruction.text for instruction in kernel_listing.code),
        pc=instruction_index.astype(np.int32),
        line=line_numbers[instruction_index],
        column=column_numbers[instruction_index],
        active_mask=step_records["active"].copy(),
        executed_mask=step_records["executed"].copy(),
        text_index=instruction_index.astype(np.int32),
        space=results.SPACES,
        access_space=space,
        access_is_store=kernel_listing.is_store[instruction_index],
        access_size_bytes=kernel_listing.size_bytes[instruction_index],
        address=address,
        sectors=sectors,
        wavefronts=wavefronts,
        value=lane_values,
        value_type=tuple(t[0] if t else "" for t in kernel_listing.register_types),
        value_register=tuple(
            register_names[0] if register_names else "" for register_names in kernel_listing.registers
        ),
        truncated=raw_trace.truncated,
        note=stop_note,
        detail=detail,
    )


def _make_step_detail(
    kernel_listing: KernelListing,
    step_records: npt.NDArray[Any],
    step_indices: Ints,
    instruction_index: Ints,
    rows: npt.NDArray[Any],
    step_of_row: Ints,
    shared_writes: SharedWrites,
) -> StepDetail:
    extra_register_rows = np.flatnonzero((rows["kind"] > layout.ROW_REGISTER) & (step_of_row >= 0))
    name_indices: dict[tuple[str, str], int] = {}
    register_position = rows["kind"][extra_register_rows] - layout.ROW_REGISTER
    name_index = np.zeros(len(extra_register_rows), np.int32)
    for instruction_position, n in {
        *zip(
            instruction_index[step_of_row[extra_register_rows]].tolist(),
            register_position.tolist(),
            strict=True,
        )
    }:
        register_and_type = (
            kernel_listing.registers[instruction_position][n],
            kernel_listing.register_types[instruction_position][n],
        )
        is_match = (instruction_index[step_of_row[extra_register_rows]] == instruction_position) & (
            register_position == n
        )
        name_index[is_match] = name_indices.setdefault(register_and_type, len(name_indices))
    written_rows, width_bytes = _find_written_rows(rows)
    is_of_warp = step_of_row[written_rows] >= 0
    written_rows = written_rows[is_of_warp]
    width_bytes = width_bytes[is_of_warp]
    step_index = step_of_row[written_rows]
    first_rows = np.flatnonzero(np.diff(step_index, prepend=-1))
    chunk_index = np.arange(len(step_index)) - np.repeat(first_rows, np.diff([*first_rows, len(step_index)]))
    return StepDetail(
        sequence=step_indices.astype(np.int64),
        depth=step_records["depth"].astype(np.int16),
        extra_step=step_of_row[extra_register_rows].astype(np.int32),
        extra_name=name_index,
        extra_value=rows["lanes"][extra_register_rows],
        extra_register=tuple(register for register, _ in name_indices),
        extra_type=tuple(type_name for _, type_name in name_indices),
        stored_step=step_index.astype(np.int32),
        stored_part=chunk_index.astype(np.int16),
        stored_width_bytes=width_bytes.astype(np.int8),
        stored_value=rows["lanes"][written_rows],
        stored_type=kernel_listing.stored_types,
        order=kernel_listing.scheduling_order,
        loops=kernel_listing.loops,
        shared=shared_writes,
    )


def _resolve_generic_addresses(
    space: npt.NDArray[np.int8], address: npt.NDArray[np.int64], executed_masks: npt.NDArray[np.uint32]
) -> None:
    """Convert generic addresses to addresses in the state space of their first active lane."""
    generic_rows = np.flatnonzero((space == _GENERIC) & (executed_masks != 0))
    if not len(generic_rows):
        return
    first_address = address[generic_rows, np.argmax(_lanes_of_masks(executed_masks[generic_rows]), axis=1)]
    tag = (first_address >> _TAG_SHIFT) & 0xFF
    space[generic_rows] = np.select([tag == 1, tag == 2], [_SHARED, _LOCAL], 0)
    tagged_rows = generic_rows[tag > 0]
    address[tagged_rows] = np.where(
        address[tagged_rows] >= 0, address[tagged_rows] & ((1 << _TAG_SHIFT) - 1), -1
    )


def _compute_access_costs(
    kernel_listing: KernelListing,
    instruction_index: Ints,
    space: npt.NDArray[np.int8],
    address: npt.NDArray[np.int64],
    executed_masks: npt.NDArray[np.uint32],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the sectors and wavefronts of every access; the cost of equal patterns is computed only once."""
    sectors = np.zeros(len(instruction_index), np.int32)
    wavefronts = np.zeros(len(instruction_index), np.int32)
    accesses = np.flatnonzero((space >= 0) & (executed_masks != 0))
    lanes = _lanes_of_masks(executed_masks[accesses])
    lowest_address = np.where(lanes, address[accesses], np.iinfo(np.int64).max).min(
        axis=1, initial=np.iinfo(np.int64).max
    )
    relative_address = np.where(
        lanes, address[accesses] - (lowest_address // _BANK_PERIOD_BYTES * _BANK_PERIOD_BYTES)[:, None], -1
    )
    cost_of_pattern: dict[tuple[int, int, bytes], tuple[int, int]] = {}
    pattern_bytes = relative_address.tobytes()
    row_bytes = 8 * layout.LANES
    for access_number, (step_index, space_code, instruction_position) in enumerate(
        zip(accesses.tolist(), space[accesses].tolist(), instruction_index[accesses].tolist(), strict=True)
    ):
        cost_key = (
            instruction_position,
            space_code,
            pattern_bytes[access_number * row_bytes : (access_number + 1) * row_bytes],
        )
        if cost_key not in cost_of_pattern:
            cost_of_pattern[cost_key] = results.compute_access_cost(
                results.SPACES[space_code],
                int(kernel_listing.size_bytes[instruction_position]),
                relative_address[access_number],
                int(executed_masks[step_index]),
                kernel_listing.rules[instruction_position],
            )
        sectors[step_index], wavefronts[step_index] = cost_of_pattern[cost_key]
    return sectors, wavefronts
