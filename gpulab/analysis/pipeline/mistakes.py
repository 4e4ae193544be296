"""Uses and fills of buffers that no wait or barrier orders."""

from __future__ import annotations

from collections import defaultdict
from typing import Literal

import numpy as np

from gpulab.analysis.pipeline.buffers import Buffers
from gpulab.analysis.pipeline.order import Ints, Steps
from gpulab.analysis.pipeline.record import Mistake, Site

Kind = Literal["early", "overwritten"]
_NEVER = np.iinfo(np.int64).max


class _Parts:
    """The parts of the fills of one buffer, one for each warp that fills it.

    A row has the fill, the warp, its first tick, and the chain and the tick at which the part has landed
    (`_NEVER` if it does not).
    """

    def __init__(self, steps: Steps, buffers: Buffers, buffer: int) -> None:
        written = buffers.written
        is_own = buffers.buffer_of_piece[written.piece] == buffer
        rows = written.row[is_own]
        writes = buffers.writes
        step = writes.step[rows]
        parts: dict[tuple[int, int, int], list[int]] = {}
        landing_tick = np.where(writes.landing_step[rows] < 0, _NEVER, writes.landing_tick[rows])
        for fill, warp, tick, chain, landed in np.unique(
            np.stack(
                [
                    buffers.fill[is_own],
                    steps.warp[step],
                    steps.tick[step],
                    writes.landing_chain[rows],
                    landing_tick,
                ],
                axis=1,
            ),
            axis=0,
        ).tolist():
            part = parts.setdefault((fill, warp, chain), [tick, landed])
            part[:] = min(part[0], tick), max(part[1], landed)
        self.by_fill: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
        for (fill, warp, chain), (tick, landed) in parts.items():
            self.by_fill[fill].append((warp, tick, chain, landed))


def fills_used(steps: Steps, buffers: Buffers) -> Ints:
    """Return the fill that each piece in `Buffers.read` is meant to read, as a number among its buffer's.

    If all fills that a warp knows to have started have also landed, it uses the latest of them. Otherwise it
    waits for too little, or a fill has started too early: then it uses the fill after the one that it used
    before its last wait.
    """
    buffer = buffers.buffer_of_piece[buffers.read.piece]
    step = buffers.read_step[buffers.read.row]
    pairs, inverse = np.unique(np.stack([step, buffer], axis=1), axis=0, return_inverse=True)
    parts = [_Parts(steps, buffers, number).by_fill for number in range(buffers.fills.size)]
    last_use: dict[tuple[int, int], tuple[int, int]] = {}  # fill and number of waits, by warp and buffer
    started: dict[tuple[int, int], int] = {}
    result = []
    for read_step, number in pairs.tolist():
        warp = int(steps.warp[read_step])
        key = warp, number
        tick = int(steps.tick[read_step])
        clock = steps.clocks[steps.clock[read_step]]

        def knows(
            chain: int, other_tick: int, warp: int = warp, tick: int = tick, clock: Ints = clock
        ) -> bool:
            return other_tick < tick if chain == warp else bool(clock[chain] >= other_tick)

        latest = started.get(key, -1)
        while latest + 1 < buffers.fills[number] and any(
            knows(part_warp, part_tick) for part_warp, part_tick, *_ in parts[number][latest + 1]
        ):
            latest += 1
        started[key] = latest
        waits = int(steps.waits[read_step])
        previous_fill, previous_waits = last_use.get(key, (-1, -1))
        fill = previous_fill + (waits > previous_waits)
        if latest >= 0:
            has_landed = all(
                knows(chain, landed)
                for part_warp, part_tick, chain, landed in parts[number][latest]
                if knows(part_warp, part_tick)
            )
            fill = latest if has_landed else min(fill, latest)
        fill = min(fill, int(buffers.fills[number]) - 1)
        last_use[key] = fill, waits
        result.append(fill)
    return np.array(result, np.int64)[inverse.reshape(-1)]


def find_mistakes(steps: Steps, buffers: Buffers, used_fill: Ints) -> tuple[Mistake, ...]:
    """Return the pairs of a use and a fill of the same bytes that are not ordered, by their source lines.

    `used_fill` is the result of `fills_used`.
    """
    writes = buffers.writes
    numbers = int(buffers.fills.max()) + 1
    key = buffers.written.piece * numbers + buffers.fill
    order = np.lexsort((writes.step[buffers.written.row], key))
    sorted_keys, row = key[order], buffers.written.row[order]
    piece, read_step = buffers.read.piece, buffers.read_step[buffers.read.row]
    wanted = piece * numbers + used_fill
    last = np.searchsorted(sorted_keys, wanted, side="right") - 1
    found: dict[tuple[Kind, int, int], list[tuple[int, int, int, int]]] = defaultdict(list)
    kinds: tuple[tuple[Kind, Ints], ...] = ("early", last), ("overwritten", last + 1)
    for kind, index in kinds:
        is_known = (index >= 0) & (index < sorted_keys.size)
        is_known[is_known] = sorted_keys[index[is_known]] // numbers == piece[is_known]
        reads, fills = read_step[is_known], row[index[is_known]]
        if kind == "early":
            is_ordered = (writes.landing_step[fills] >= 0) & steps.known(
                writes.landing_chain[fills], writes.landing_tick[fills], reads
            )
        else:
            is_ordered = steps.known(steps.warp[reads], steps.tick[reads], writes.step[fills])
        buffer = buffers.buffer_of_piece[piece[is_known]]
        number = sorted_keys[index[is_known]] % numbers
        columns = np.stack([reads, writes.step[fills], buffer, number], axis=1)[~is_ordered]
        for use, fill, place, fill_number in np.unique(columns, axis=0).tolist():
            lines = int(steps.line[use]), int(steps.line[fill])
            found[kind, *lines].append((use, fill, place, fill_number))
    result = [_mistake(steps, kind, occurrences) for (kind, *_), occurrences in found.items()]
    return tuple(sorted(result, key=lambda mistake: (mistake.use.position, mistake.fill.position)))


def _mistake(steps: Steps, kind: Kind, occurrences: list[tuple[int, int, int, int]]) -> Mistake:
    """Return the mistake of several uses and fills, which are steps, at the same two lines."""
    use, fill, *_ = min(occurrences, key=lambda pair: (steps.position[pair[0]], pair))
    sites = [
        Site(warp=int(steps.warp[step]), position=int(steps.position[step]), line=int(steps.line[step]))
        for step in (use, fill)
    ]
    return Mistake(
        kind=kind,
        use=sites[0],
        fill=sites[1],
        fills=tuple(sorted({(buffer, number) for *_, buffer, number in occurrences})),
        count=len({step for step, *_ in occurrences}),
    )
