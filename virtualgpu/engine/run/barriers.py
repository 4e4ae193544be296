"""Barriers of a block that generated code does not handle: numbers, thread counts, reductions, deadlock.

Generated code opens a barrier itself if every thread waits at the same plain ``__syncthreads``.
This module handles every other barrier, once per opening.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.engine.ir import layout
from virtualgpu.engine.run.launch import RunningLaunch
from virtualgpu.words import count, noun

_BLOCK_MASK = (1 << layout.BARRIER_SHIFT) - 1


class Worker(Protocol):
    """The part of a worker's interface that the barrier functions use."""

    launch: RunningLaunch
    context: npt.NDArray[Any]
    status: npt.NDArray[np.int32]
    predicates: npt.NDArray[np.uint32]
    fault_report: str
    excused_blocks: dict[int, tuple[int, ...]]

    def bytes_at(self, address: int, size: int) -> npt.NDArray[np.uint8]:
        """Return a range of host memory as a writable array of bytes."""


def read_lane_pcs(worker: Worker) -> npt.NDArray[np.int32]:
    """Return the program counters of all lanes of a block as a writable array of shape (warps, 32)."""
    context_record = worker.context[0]
    frames_address = int(context_record["frames"])
    frame_stride = int(context_record["frame_stride"])
    warps = int(context_record["warps"])
    frame_rows = worker.bytes_at(frames_address, frame_stride * warps).reshape(warps, frame_stride)
    return frame_rows[:, : 4 * layout.LANES].view(np.int32)


def find_running_thread(worker: Worker) -> tuple[int, int, int] | None:
    """Return the warp, lane and basic block of a thread that is still running, or None if there is none."""
    pcs = read_lane_pcs(worker).copy()  # the block may continue to run
    # For a block that is about to start, the values are undefined.
    warps, lanes = np.nonzero((pcs >= 0) & (pcs < len(worker.launch.kernel.plans[0].control_flow.blocks)))
    if not warps.size:
        return None
    warp = int(warps[0])
    lane = int(lanes[0])
    return warp, lane, int(pcs[warp, lane])


def find_expected_lanes(worker: Worker, barrier: ir.Instruction, warp: int, mask: int) -> int:
    """Return the mask of the lanes of a warp that must reach a barrier together.

    If diverged lanes have waited for each other, their order of arrival depends on the engine. Then only the
    lanes that have arrived, `mask`, are expected.
    """
    context_record = worker.context[0]
    frame_address = int(context_record["frames"]) + warp * int(context_record["frame_stride"])
    if worker.bytes_at(frame_address + layout.ROTATED_OFFSET, 4).view(np.int32)[0]:
        return mask
    pcs = worker.bytes_at(frame_address, 4 * layout.LANES).view(np.int32)
    is_expected = pcs != layout.EXITED
    excused_block_numbers = worker.excused_blocks.get(barrier.pc)
    if excused_block_numbers is None:
        plan = worker.launch.kernel.plans[0]
        excused_block_numbers = worker.excused_blocks[barrier.pc] = cfg.find_excused_blocks(
            plan.function, plan.control_flow, barrier.pc
        )
    waiting_lanes = pcs >= layout.BARRIER_PC
    is_expected &= ~np.isin(np.where(waiting_lanes, -1, pcs & (layout.PARKED_PC - 1)), excused_block_numbers)
    lanes_at_barrier = [
        lane
        for lane in np.flatnonzero(waiting_lanes & is_expected)
        if _find_barrier(worker, int(pcs[lane])) is barrier
    ]
    is_expected[lanes_at_barrier] = False  # they wait here already, and were checked when they arrived
    return mask | int.from_bytes(np.packbits(is_expected, bitorder="little").tobytes(), "little")


def _find_barrier(worker: Worker, wait_code: int) -> ir.Instruction:
    """Return the barrier instruction at which lanes with this mark wait: the last one before their block."""
    plan = worker.launch.kernel.plans[0]
    resumed_block = plan.control_flow.blocks[wait_code & _BLOCK_MASK]
    return plan.function.instructions[resumed_block.first - 1]


def open_barriers(worker: Worker) -> int:
    """Open every barrier that all expected threads have reached, or report a deadlock if there is none."""
    pcs = read_lane_pcs(worker)
    is_waiting = (pcs >= layout.BARRIER_PC) & (pcs != layout.EXITED)
    is_alive = pcs != layout.EXITED
    context_record = worker.context[0]
    is_opened = False
    for barrier_index in np.unique(
        (pcs[is_waiting] >> layout.BARRIER_SHIFT) & (layout.BARRIER_COUNT - 1)
    ).tolist():
        is_at_barrier = is_waiting & (
            (pcs >> layout.BARRIER_SHIFT) & (layout.BARRIER_COUNT - 1) == barrier_index
        )
        expected_lanes = int(context_record["barrier_counts"][barrier_index])
        arrived_lanes = int(is_at_barrier.sum()) + int(context_record["barrier_arrived"][barrier_index])
        if arrived_lanes < (expected_lanes or int(is_alive.sum())):
            continue
        wait_codes = np.unique(pcs[is_at_barrier]).tolist()
        if (
            not expected_lanes
            and len(wait_codes) > 1
            and (is_divergent := _find_divergent_warps(pcs, is_at_barrier)).any()
        ):
            return _record_fault(worker, layout.DIVERGENT_BARRIER, is_at_barrier & is_divergent[:, None], pcs)
        _write_reduction(worker, pcs, is_at_barrier, wait_codes)
        context_record["barrier_arrived"][barrier_index] = 0
        if worker.launch.options.observer is not None:
            is_whole_block = bool((is_at_barrier == is_alive).all())
            worker.launch.options.observer.barrier(
                int(context_record["block_linear"]), is_at_barrier, is_whole_block, barrier_index
            )
        pcs[is_at_barrier] &= _BLOCK_MASK
        is_opened = True
    if is_opened:
        status = worker.status
        status[(status == layout.STATUS_WAITING) & ((pcs < layout.BARRIER_PC).any(axis=1))] = (
            layout.STATUS_YIELDED
        )
        return layout.BARRIER_OPENED
    if not (worker.status == layout.STATUS_YIELDED).any():
        return _record_fault(worker, layout.BARRIER_DEADLOCK, is_waiting, pcs)
    return layout.NO_BARRIER_OPENED


def _find_divergent_warps(
    pcs: npt.NDArray[np.int32], is_at_barrier: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Return a mask of the warps whose lanes wait at several barriers.

    Whole warps may wait at different barrier instructions: PTX and GPUs count arrivals by the barrier's
    number. It is undefined in CUDA C++, so a checking tool reports it.
    """
    lowest_pc = np.where(is_at_barrier, pcs, np.iinfo(np.int32).max).min(axis=1)
    highest_pc = np.where(is_at_barrier, pcs, -1).max(axis=1)
    is_divergent: npt.NDArray[np.bool_] = is_at_barrier.any(axis=1) & (lowest_pc != highest_pc)
    return is_divergent


def _record_fault(worker: Worker, code: int, lanes: npt.NDArray[np.bool_], pcs: npt.NDArray[np.int32]) -> int:
    """Record a fault for the first waiting thread."""
    warp, lane = (int(v[0]) for v in np.nonzero(lanes))
    context_record = worker.context[0]
    context_record["fault_code"], context_record["fault_function"] = code, 0
    context_record["fault_pc"] = _find_barrier(worker, int(pcs[warp, lane])).pc
    context_record["warp"], context_record["fault_lane"] = warp, lane
    other_lanes = (pcs != layout.EXITED) & ~lanes
    worker.fault_report = _describe_waiting_threads(worker, code, lanes, other_lanes, pcs)
    return layout.BARRIER_FAULT


def _describe_waiting_threads(
    worker: Worker,
    code: int,
    lanes: npt.NDArray[np.bool_],
    other_lanes: npt.NDArray[np.bool_],
    pcs: npt.NDArray[np.int32],
) -> str:
    if code == layout.DIVERGENT_BARRIER:
        line_numbers = sorted(
            {_find_barrier(worker, int(wait_code)).line for wait_code in np.unique(pcs[lanes])}
        )
        location = (
            f"lines {', '.join(map(str, line_numbers))}"
            if len(line_numbers) > 1
            else f"of line {line_numbers[0]}"
        )
        return f"threads of one warp wait at different barriers ({location})"
    waiting_count = int(lanes.sum())
    other_count = int(other_lanes.sum())
    location = (
        f"; {count(other_count, 'other thread')} {noun(other_count, 'waits', 'wait')} elsewhere"
        if other_count
        else ""
    )
    wait_verb = noun(waiting_count, "waits", "wait")
    return f"{count(waiting_count, 'thread')} {wait_verb} for more threads than can arrive{location}"


def _write_reduction(
    worker: Worker, pcs: npt.NDArray[np.int32], is_at_barrier: npt.NDArray[np.bool_], wait_codes: list[int]
) -> None:
    """Write the result of ``bar.red``: the number, the conjunction or the disjunction of all predicates."""
    for wait_code in wait_codes:
        instruction = _find_barrier(worker, wait_code)
        if "red" not in instruction.parts:
            continue
        plan = worker.launch.kernel.plans[0]
        (result_register,) = cfg.find_definitions_and_uses(instruction)[0]
        predicate_bits = (worker.predicates[:, None] >> np.arange(layout.LANES, dtype=np.uint32)) & 1
        true_count = int((predicate_bits.astype(bool) & is_at_barrier).sum())
        reduction_result: Any = true_count > 0
        if "popc" in instruction.parts:
            reduction_result = true_count
        elif "and" in instruction.parts:
            reduction_result = true_count == int(is_at_barrier.sum())
        context_record = worker.context[0]
        for warp in np.nonzero((pcs == wait_code).any(axis=1))[0].tolist():
            lanes = (pcs[warp] == wait_code) & is_at_barrier[warp]
            if worker.launch.trace is not None:
                worker.launch.trace.record_reduction(
                    worker.context[0], warp, plan.index, instruction.pc, lanes, int(reduction_result)
                )
            slot_address = (
                int(context_record["frames"])
                + warp * int(context_record["frame_stride"])
                + plan.register_slots[result_register]
            )
            if "popc" in instruction.parts:
                worker.bytes_at(slot_address, 4 * layout.LANES).view(np.uint32)[lanes] = reduction_result
            else:
                predicate_word = worker.bytes_at(slot_address, 4).view(np.uint32)
                lane_mask = np.uint32(sum(1 << n for n in np.nonzero(lanes)[0].tolist()))
                predicate_word[0] = (predicate_word[0] & ~lane_mask) | (
                    lane_mask if reduction_result else np.uint32(0)
                )
