"""Uses and fills of buffers that no wait or barrier orders."""

from __future__ import annotations

from collections import defaultdict
from typing import Literal

import numpy as np

from gpulab.analysis.pipeline.buffers import Buffers
from gpulab.analysis.pipeline.order import Ints, Steps
from gpulab.analysis.pipeline.record import Mistake, Site

MistakeKind = Literal["early", "overwritten"]
_NEVER_TICK = np.iinfo(np.int64).max


class _FillParts:
    """The parts of the fills of one buffer, one for each warp that fills it.

    A row has the fill, the warp, its first tick, and the chain and the tick at which the part has landed
    (`_NEVER_TICK` if it does not).
    """

    def __init__(self, steps: Steps, buffers: Buffers, buffer_number: int) -> None:
        written_pieces = buffers.written_pieces
        is_own = buffers.buffer_of_piece[written_pieces.piece] == buffer_number
        write_rows = written_pieces.row[is_own]
        writes = buffers.writes
        write_step = writes.step[write_rows]
        ticks_by_part: dict[tuple[int, int, int], list[int]] = {}
        landing_tick = np.where(
            writes.landing_step[write_rows] < 0, _NEVER_TICK, writes.landing_tick[write_rows]
        )
        for fill_number, warp, tick, chain, landed_tick in np.unique(
            np.stack(
                [
                    buffers.fill_numbers[is_own],
                    steps.warp[write_step],
                    steps.tick[write_step],
                    writes.landing_chain[write_rows],
                    landing_tick,
                ],
                axis=1,
            ),
            axis=0,
        ).tolist():
            part_ticks = ticks_by_part.setdefault((fill_number, warp, chain), [tick, landed_tick])
            part_ticks[:] = min(part_ticks[0], tick), max(part_ticks[1], landed_tick)
        self.parts_by_fill: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
        for (fill_number, warp, chain), (tick, landed_tick) in ticks_by_part.items():
            self.parts_by_fill[fill_number].append((warp, tick, chain, landed_tick))


def find_used_fills(steps: Steps, buffers: Buffers) -> Ints:
    """Return the number of the fill that each read in the array `Buffers.read` is intended to use.

    If every fill that has started has also landed, as far as the warp knows, the warp uses the latest of
    these fills. Otherwise it waits for too little, or a fill has started too early: then it uses the fill
    after the one that it used before its last wait.
    """
    buffer_numbers = buffers.buffer_of_piece[buffers.read_pieces.piece]
    read_steps = buffers.read_step[buffers.read_pieces.row]
    step_buffers, step_of_read = np.unique(
        np.stack([read_steps, buffer_numbers], axis=1), axis=0, return_inverse=True
    )
    parts_of_buffer = [
        _FillParts(steps, buffers, buffer_number).parts_by_fill
        for buffer_number in range(buffers.fill_counts.size)
    ]
    last_used_fill: dict[
        tuple[int, int], tuple[int, int]
    ] = {}  # fill and number of waits, by warp and buffer
    last_started_fill: dict[tuple[int, int], int] = {}
    used_fills = []
    for read_step, buffer_number in step_buffers.tolist():
        warp = int(steps.warp[read_step])
        warp_and_buffer = warp, buffer_number
        tick = int(steps.tick[read_step])
        read_clock = steps.clocks[steps.clock[read_step]]

        def must_precede(
            chain: int, other_tick: int, warp: int = warp, tick: int = tick, clock: Ints = read_clock
        ) -> bool:
            return other_tick < tick if chain == warp else bool(clock[chain] >= other_tick)

        latest_fill = last_started_fill.get(warp_and_buffer, -1)
        while latest_fill + 1 < buffers.fill_counts[buffer_number] and any(
            must_precede(part_warp, part_tick)
            for part_warp, part_tick, *_ in parts_of_buffer[buffer_number][latest_fill + 1]
        ):
            latest_fill += 1
        last_started_fill[warp_and_buffer] = latest_fill
        wait_count = int(steps.waits[read_step])
        previous_fill, previous_waits = last_used_fill.get(warp_and_buffer, (-1, -1))
        fill_number = previous_fill + (wait_count > previous_waits)
        if latest_fill >= 0:
            has_landed = all(
                must_precede(chain, landed_tick)
                for part_warp, part_tick, chain, landed_tick in parts_of_buffer[buffer_number][latest_fill]
                if must_precede(part_warp, part_tick)
            )
            fill_number = latest_fill if has_landed else min(fill_number, latest_fill)
        fill_number = min(fill_number, int(buffers.fill_counts[buffer_number]) - 1)
        last_used_fill[warp_and_buffer] = fill_number, wait_count
        used_fills.append(fill_number)
    return np.array(used_fills, np.int64)[step_of_read.reshape(-1)]


def find_mistakes(steps: Steps, buffers: Buffers, used_fill: Ints) -> tuple[Mistake, ...]:
    """Find pairs of a use and a fill that access the same bytes and whose order is undefined. Return one
    mistake for each kind and pair of source lines.

    `used_fill` is the result of `find_used_fills`.
    """
    writes = buffers.writes
    fill_limit = int(buffers.fill_counts.max()) + 1
    fill_keys = buffers.written_pieces.piece * fill_limit + buffers.fill_numbers
    key_order = np.lexsort((writes.step[buffers.written_pieces.row], fill_keys))
    sorted_keys, write_row = fill_keys[key_order], buffers.written_pieces.row[key_order]
    read_piece, read_step = buffers.read_pieces.piece, buffers.read_step[buffers.read_pieces.row]
    used_key = read_piece * fill_limit + used_fill
    used_index = np.searchsorted(sorted_keys, used_key, side="right") - 1
    occurrences_by_key: dict[tuple[MistakeKind, int, int], list[tuple[int, int, int, int]]] = defaultdict(
        list
    )
    mistake_kinds: tuple[tuple[MistakeKind, Ints], ...] = (
        ("early", used_index),
        ("overwritten", used_index + 1),
    )
    for mistake_kind, write_indices in mistake_kinds:
        is_known = (write_indices >= 0) & (write_indices < sorted_keys.size)
        is_known[is_known] = sorted_keys[write_indices[is_known]] // fill_limit == read_piece[is_known]
        read_steps, write_rows = read_step[is_known], write_row[write_indices[is_known]]
        if mistake_kind == "early":
            is_ordered = (writes.landing_step[write_rows] >= 0) & steps.is_ordered_before(
                writes.landing_chain[write_rows], writes.landing_tick[write_rows], read_steps
            )
        else:
            is_ordered = steps.is_ordered_before(
                steps.warp[read_steps], steps.tick[read_steps], writes.step[write_rows]
            )
        buffer_numbers = buffers.buffer_of_piece[read_piece[is_known]]
        fill_numbers = sorted_keys[write_indices[is_known]] % fill_limit
        mistake_rows = np.stack([read_steps, writes.step[write_rows], buffer_numbers, fill_numbers], axis=1)[
            ~is_ordered
        ]
        for use_step, fill_step, buffer_number, fill_number in np.unique(mistake_rows, axis=0).tolist():
            source_lines = int(steps.line[use_step]), int(steps.line[fill_step])
            occurrences_by_key[mistake_kind, *source_lines].append(
                (use_step, fill_step, buffer_number, fill_number)
            )
    mistakes = [
        _make_mistake(steps, mistake_kind, occurrences)
        for (mistake_kind, *_), occurrences in occurrences_by_key.items()
    ]
    return tuple(sorted(mistakes, key=lambda mistake: (mistake.use.position, mistake.fill.position)))


def _make_mistake(
    steps: Steps, mistake_kind: MistakeKind, occurrences: list[tuple[int, int, int, int]]
) -> Mistake:
    """Return one mistake for several pairs of a use and a fill at the same two source lines. The uses and
    fills are given as steps.
    """
    use_step, fill_step, *_ = min(occurrences, key=lambda pair: (steps.position[pair[0]], pair))
    access_sites = [
        Site(warp=int(steps.warp[step]), position=int(steps.position[step]), line=int(steps.line[step]))
        for step in (use_step, fill_step)
    ]
    return Mistake(
        kind=mistake_kind,
        use=access_sites[0],
        fill=access_sites[1],
        fills=tuple(sorted({(buffer, fill_number) for *_, buffer, fill_number in occurrences})),
        count=len({step for step, *_ in occurrences}),
    )
