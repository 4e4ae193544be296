"""The pipeline of a traced block: its buffers, their fills and uses, the waits, and the mistakes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import numpy as np

from gpulab.analysis.pipeline.buffers import Buffers
from gpulab.analysis.pipeline.mistakes import find_mistakes, find_used_fills
from gpulab.analysis.pipeline.order import Ints, Steps
from gpulab.analysis.pipeline.record import Buffer, Fill, Iteration, Mark, MarkKind, Pipeline, Use
from virtualgpu.errors import GpulabError
from virtualgpu.records import BlockTrace

_WAIT_KINDS = ("wait", "barrier", "wait for arrivals")


def find_pipeline(trace: BlockTrace) -> Pipeline:
    """Find the shared-memory buffers in the trace of a block, and return how the block fills and uses them.

    Raises
    ------
    GpulabError
        If the block fills no shared memory that it then uses, or fills each buffer once and without
        asynchronous copies.
    """
    steps = Steps(trace)
    buffers = Buffers(steps, trace.shared)
    if not buffers.read_pieces.row.size:
        raise GpulabError(
            f"`{trace.kernel_name}` has no pipeline: in this launch, its block does not fill shared memory "
            "and read it afterwards. gl.warps(kernel, grid, block, args, whole_block=True) shows its steps."
        )
    if not buffers.writes.is_asynchronous.any() and buffers.fill_counts.max() < 2:
        raise GpulabError(
            f"`{trace.kernel_name}` has no pipeline: it fills each buffer of shared memory once, and without "
            "asynchronous copies. A pipeline fills its buffers again in a loop. Launch the kernel with more "
            "data, or use gl.warps(kernel, grid, block, args, whole_block=True) to see its steps."
        )
    used_fill = find_used_fills(steps, buffers)
    return Pipeline(
        trace=trace,
        buffers=_make_buffers(buffers),
        fills=_make_fills(steps, buffers),
        uses=_make_uses(steps, buffers, used_fill),
        marks=_join_warps(steps.marks),
        mistakes=find_mistakes(steps, buffers, used_fill),
        iterations=_find_iterations(steps, buffers),
        length=int(steps.position.max()) + 1,
    )


def _make_buffers(buffers: Buffers) -> tuple[Buffer, ...]:
    piece_bytes = buffers.piece_bytes
    buffer_records = []
    for buffer_number in range(buffers.fill_counts.size):
        buffer_pieces = np.flatnonzero(buffers.buffer_of_piece == buffer_number)
        buffer_records.append(
            Buffer(
                start_byte=int(buffer_pieces[0]) * piece_bytes,
                end_byte=(int(buffer_pieces[-1]) + 1) * piece_bytes,
                size_bytes=buffer_pieces.size * piece_bytes,
            )
        )
    return tuple(buffer_records)


def _make_fills(steps: Steps, buffers: Buffers) -> tuple[Fill, ...]:
    writes = buffers.writes
    buffer_of_write = buffers.buffer_of_piece[buffers.written_pieces.piece]
    fill_records = []
    for (buffer_number, fill_number), write_rows in _group_rows(
        buffer_of_write, buffers.fill_numbers, buffers.written_pieces.row
    ):
        wait_steps = writes.wait_step[write_rows]
        is_asynchronous = bool(writes.is_asynchronous[write_rows].any())
        fill_records.append(
            Fill(
                buffer=buffer_number,
                number=fill_number,
                asynchronous=is_asynchronous,
                start=int(steps.position[writes.step[write_rows]].min()),
                landed=None if (wait_steps < 0).any() else int(steps.position[wait_steps].max()),
                warps=_make_sorted_tuple(steps.warp[writes.step[write_rows]]),
                lines=_make_sorted_tuple(steps.line[writes.step[write_rows]]),
                wait_lines=_make_sorted_tuple(steps.line[wait_steps[wait_steps >= 0]])
                if is_asynchronous
                else (),
            )
        )
    return tuple(fill_records)


def _make_uses(steps: Steps, buffers: Buffers, used_fill: Ints) -> tuple[Use, ...]:
    buffer_of_read = buffers.buffer_of_piece[buffers.read_pieces.piece]
    use_records = []
    for (buffer_number, fill_number), read_rows in _group_rows(
        buffer_of_read, used_fill, buffers.read_pieces.row
    ):
        read_steps = buffers.read_step[read_rows]
        use_records.append(
            Use(
                buffer=buffer_number,
                fill=fill_number,
                start=int(steps.position[read_steps].min()),
                end=int(steps.position[read_steps].max()) + 1,
                warps=_make_sorted_tuple(steps.warp[read_steps]),
                lines=_make_sorted_tuple(steps.line[read_steps]),
            )
        )
    return tuple(use_records)


def _group_rows(first_column: Ints, second_column: Ints, row: Ints) -> Iterable[tuple[tuple[int, int], Ints]]:
    """Yield each distinct pair of values of two columns, together with the distinct rows in which the pair
    occurs.
    """
    sorted_value_rows = np.unique(np.stack([first_column, second_column, row], axis=1), axis=0)
    pair_starts = np.flatnonzero((np.diff(sorted_value_rows[:, :2], axis=0) != 0).any(axis=1)) + 1
    for pair_rows in np.split(sorted_value_rows, pair_starts):
        yield (int(pair_rows[0, 0]), int(pair_rows[0, 1])), pair_rows[:, 2]


def _make_sorted_tuple(numbers: Ints) -> tuple[int, ...]:
    return tuple(np.unique(numbers).tolist())


def _join_warps(marks: Iterable[Mark]) -> tuple[Mark, ...]:
    """Return the marks in order. Marks of warps that synchronise in the same way at the same position become
    one mark.
    """
    warps_by_mark: dict[tuple[int, MarkKind, int, int], set[int]] = defaultdict(set)
    for mark in marks:
        warps_by_mark[mark.position, mark.kind, mark.line, mark.pending].update(mark.warps)
    return tuple(
        Mark(kind=mark_kind, position=position, line=line, pending=pending_groups, warps=tuple(sorted(warps)))
        for (position, mark_kind, line, pending_groups), warps in sorted(
            warps_by_mark.items(), key=lambda item: item[0]
        )
    )


def _find_iterations(steps: Steps, buffers: Buffers) -> tuple[Iteration, ...]:
    """Return the iterations of the loop that waits, in the warp with the most reads.

    A compiler unrolls loops, so an iteration begins at the waits and barriers before reads, of which the last
    one is most often at the same source line. The first reads can follow others, before the loop.
    """
    warp = int(np.bincount(steps.warp[buffers.read_step]).argmax())
    read_positions = np.unique(steps.position[buffers.read_step[steps.warp[buffers.read_step] == warp]])
    own_marks = [mark for mark in steps.marks if warp in mark.warps]
    line_at = {mark.position: mark.line for mark in own_marks if mark.kind in _WAIT_KINDS}
    wait_positions = np.array(sorted(line_at), np.int64)
    access_positions = steps.position[steps.find_step(steps.accesses.sequence)]
    is_own = steps.warp[steps.find_step(steps.accesses.sequence)] == warp
    other_positions = {mark.position for mark in own_marks if mark.kind not in _WAIT_KINDS} | {
        *access_positions[is_own].tolist()
    }
    other_marks = np.array(sorted(other_positions), np.int64)
    wait_indices = np.unique(np.searchsorted(wait_positions, read_positions) - 1)
    read_waits = wait_positions[wait_indices[wait_indices >= 0]].tolist()
    if not read_waits:
        return ()
    line_counts = Counter(line_at[position] for position in read_waits)
    loop_line = max(line_counts, key=lambda number: line_counts[number])
    iteration_starts = [
        read_waits[0],
        *(position for position in read_waits[1:] if line_at[position] == loop_line),
    ]
    # The first of the waits and barriers after the step before that does something else.
    first_waits = wait_positions[
        np.searchsorted(
            wait_positions,
            np.append(-1, other_marks)[np.searchsorted(other_marks, iteration_starts)],
            side="right",
        )
    ]
    return tuple(
        Iteration(position=start_position, line=line_at[start_position])
        for start_position in first_waits.tolist()
    )
