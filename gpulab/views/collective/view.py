"""Collective view: the chunks of each GPU after each step, and the traffic of each of its ports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import traitlets

from gpulab.views._base import View
from gpulab.views.parts.boxes import Box, Plot, bars, column, legend, row, switch, words
from gpulab.views.parts.items import Item, Labels, Rects
from gpulab.views.parts.palette import ink
from gpulab.views.parts.plots import plot, speaking, texts
from gpulab.words import count, duration, listing, noun, number, size
from virtualgpu.records.traffic.collective import Collective, Move, Parts
from virtualgpu.records.traffic.ports import Over

COLOURS = ("accent", "warn", "good", "purple", "accent-2", "tail", "other", "range")
ROW_PX = 32
STEPS_PX = 30
LEFT_PX = 46
RIGHT_PX = 106
_HIDDEN = "the library tells neither chunks nor steps"
# Columns of such a record, in microseconds.
SCHEDULES = {"ring": "ring", "tree": "tree", "naive": "all through GPU 0"}
LIBRARIES = {"nccl_us": "NCCL with NVLS off", "torch_us": "torch.distributed, NVLS off"}
HOT = 1.5  # times the mean of all ports, and more than the data


class CollectiveView(View):
    """The chunks of each GPU after each step of a collective operation, and the traffic of its ports.

    Parameters
    ----------
    record
        The operation.
    known
        What was recorded of as many such GPUs, as `gpulab.lab.links.records` has it; shown beside the rest
        where it is of the same operation and size.

    Attributes
    ----------
    step
        How many steps have been made of what is shown.
    """

    step = traitlets.Int(0).tag(sync=True, echo_update=False)

    def __init__(self, record: Collective, known: Sequence[Mapping[str, Any]] = ()) -> None:
        self._collective = record
        self._beside = " ".join(filter(None, (_recorded(record, each) for each in known)))
        self._held = record.states
        self._ways: tuple[Over, ...] = tuple(dict.fromkeys(c.over for c in record.traffic.crossings))
        clock = "without the host's share"
        if record.provenance.source == "measured":
            clock = "by the host's clock"
        if record.in_one_go_ns:
            clock += f"; as one CUDA graph, in which they may overlap, {duration(record.in_one_go_ns)}"
        if record.from_host_ns:
            clock += f"; without waiting between steps, from Python, {duration(record.from_host_ns)}"
        steps = f"Steps one after another, {clock}"
        if record.opaque:
            steps = f"One call of {record.algorithm}, between events"
            if record.provenance.source == "modelled":
                steps += ", after records with NVLink SHARP (NVLS) off"
        super().__init__(
            title=f"{record.operation}, {record.algorithm}, {record.gpus} GPUs",
            caption=f"{steps}; times {record.provenance.label}. Bytes are {record.bytes_are}.",
            source=record.provenance.source,
            step=(len(record.steps) + 1) // 2,
        )
        self.redraw()

    @property
    def record(self) -> Collective:
        """The record of the operation."""
        return self._collective

    def sentence(self) -> str:
        record = self._collective
        wrong = [rank for rank, right in enumerate(record.right) if not right]
        text = f"GPU {wrong[0]} ends with something else" if wrong else "every result is right"
        many = "one call" if record.opaque else count(len(record.steps), "step")
        whole = " in one go" if record.in_one_go_ns or record.from_host_ns else ""
        return (
            f"{record.operation} of {size(record.size_bytes)} on {record.gpus} GPUs by {record.algorithm}: "
            f"{many}, {duration(record.time_ns)}{whole}, {number(record.volume)} times the "
            f"data through the busiest port over {listing(self._ways) or 'none'}, {record.bytes_are}; "
            f"{text}; {record.provenance.label}."
        )

    def describe(self) -> str:
        lines = [self.sentence(), *([self._beside] if self._beside else [])]
        for at, step in enumerate(self._collective.steps, 1):
            lines.append(
                f"Step {at}, {duration(step.time_ns)}: {'; '.join(map(_told, step.moves)) or _HIDDEN}."
            )
        out, into = self._passed(len(self._collective.steps))
        lines += [
            f"GPU {rank}: {size(out[rank])} out, {size(into[rank])} in. {self._ends(rank)}"
            for rank in range(self._collective.gpus)
        ]
        return "\n".join(lines)

    def _ends(self, rank: int) -> str:
        if self._collective.right[rank]:
            return "Its result is right."
        for chunk, parts in enumerate(self._held[-1][rank]):
            wanted = self._collective.expected_parts(rank, chunk)
            if wanted not in (None, parts):
                return f"Its chunk {chunk} is {_sum(parts)}."
        return "Its result is wrong."

    def _passed(self, steps: int) -> tuple[list[int], list[int]]:
        """Bytes out of and into each GPU in the first steps."""
        record = self._collective
        ends = [*record.begins, len(record.traffic.crossings)]
        out = [0] * record.gpus
        into = [0] * record.gpus
        for each in record.traffic.crossings[: ends[steps]]:
            out[each.source] += each.size_bytes
            into[each.target] += each.size_bytes
        return out, into

    def draw(self) -> Box:
        record = self._collective
        cases = {at: self._shown(at) for at in range(len(record.steps) + 1)}
        wrong = [f"GPU {r} is wrong. {self._ends(r)}" for r, right in enumerate(record.right) if not right]
        return column(
            words(" ".join(wrong[:2]), "strong") if wrong else None,
            self._steps(),
            switch("step", self.step, cases),
            legend(
                [
                    ("fg", "came in this step"),
                    ("other-pale", "part of a result, or what it began with"),
                    ("accent", "finished chunk, a colour each"),
                ]
            ),
            words(self._beside, "note") if self._beside else None,
            words("Click a step, or focus the steps and use the arrow keys.", "note", only="page"),
        )

    def _steps(self) -> Plot:
        steps = self._collective.steps
        positions = np.arange(len(steps) + 1)
        sentences = ["before the first step"]
        sentences += [
            f"after step {index}, which takes {duration(s.time_ns)}" for index, s in enumerate(steps, 1)
        ]
        names = ["begin", *(str(index) for index in positions[1:])]
        return plot(
            STEPS_PX,
            (0, len(positions)),
            Rects(
                positions,
                positions + 1,
                0 * positions + 2,
                0 * positions + STEPS_PX - 6,
                "grid",
                inset=1,
                outline=True,
                **speaking(sentences),
            ),
            texts([(index + 0.5, STEPS_PX / 2 - 2, name, 1) for index, name in enumerate(names)]),
            label="Steps",
            left=LEFT_PX,
            trait="step",
            values=positions.tolist(),
            chosen=int(self.step),
        )

    def _shown(self, at: int) -> Box:
        record = self._collective
        if at == 0:
            told = f"Before the first step: each GPU holds {size(record.size_bytes)} of its own."
        else:
            step = record.steps[at - 1]
            whole = duration(step.time_ns)
            told = f"Step {at} of {len(record.steps)}: {count(len(step.moves), 'chunk')} on the way, {whole}."
            if step.copies_ns:
                port = f"{duration(step.copies_ns)} for the busiest port, {whole} with what is added."
                told = told.replace(f"{whole}.", port)
            if record.opaque:
                told = f"After the call, {whole}: {_HIDDEN}."
        return column(
            words(told, "strong"),
            row(self._chunks(at), self._ports(at), weights=[1.6, 1], least=[420, 230]),
        )

    def _chunks(self, at: int) -> Box:
        record = self._collective
        chunks = len(record.chunk_bytes)
        gap = 0.002 * chunks
        moves = record.steps[at - 1].moves if at else ()
        came = {(move.target, move.chunk) for move in moves}
        cells = []
        frames = []
        palette = [*COLOURS, *(f"{c}-pale" for c in COLOURS)]
        said = []
        written: dict[str, list[tuple[float, float, str, float]]] = {}
        for rank in range(record.gpus):
            top = ROW_PX * rank
            for chunk in range(chunks):
                parts = self._held[at][rank][chunk]
                done = parts == self._finished(chunk)
                colour = chunk % len(COLOURS) + (0 if done else len(COLOURS))
                box = (chunk + 2 * gap, chunk + 1 - 2 * gap, top + 4, top + ROW_PX - 4)
                if (rank, chunk) in came:
                    frames.append((chunk + 0.5 * gap, chunk + 1 - 0.5 * gap, box[2] - 3, box[3] + 3, 0))
                cells.append((*box, colour))
                written.setdefault(ink(palette[colour]), []).append(
                    (chunk + 0.5, top + ROW_PX / 2, f"{_sum(parts)}\n{_short(parts)}", 0.9)
                )
                said.append(f"GPU {rank}, chunk {chunk}: {_sum(parts)}{', finished' if done else ''}")
        items: list[Item | None] = [_rects(cells, palette, said)]
        items += [_rects(frames, ["fg"])] if frames else []
        items += [_rects(_framed(cells, frames), palette)] if frames else []
        items += [texts(each, colour=colour, size=10) for colour, each in written.items()]
        ranks = range(record.gpus)
        middle = [ROW_PX * (rank + 0.5) for rank in ranks]
        sends = [_sends([move for move in moves if move.source == rank]) for rank in ranks]
        items += [
            Labels([0.0] * record.gpus, middle, [f"GPU {r}" for r in ranks], anchor="end", dx=-5, pin=True),
            Labels([float(chunks)] * record.gpus, middle, sends, dx=6, size=10, colour="muted"),
        ]
        return plot(
            ROW_PX * record.gpus,
            (0, chunks),
            *items,
            left=LEFT_PX,
            right=RIGHT_PX,
            label=f"Chunks of each GPU after {count(at, 'step')}",
            hint="Point at a chunk, or use the arrow keys: whose sum is it?",
        )

    def _finished(self, chunk: int) -> Parts | None:
        """Return the contents of a finished chunk."""
        every = (self._collective.expected_parts(rank, chunk) for rank in range(self._collective.gpus))
        return next((parts for parts in every if parts is not None), None)

    def _ports(self, at: int) -> Box:
        record = self._collective
        out, into = self._passed(at)
        most = record.traffic.busiest_bytes or 1
        mean = (sum(out) + sum(into)) / (2 * record.gpus)
        rows = []
        for rank in range(record.gpus):
            for way, moved in (("out", out[rank]), ("in", into[rank])):
                hot = moved > max(HOT * mean, record.size_bytes)
                rows.append(
                    {
                        "label": f"GPU {rank} {way}",
                        "share": moved / most,
                        "value": size(moved),
                        "mark": "hot" if hot else "",
                        "colour": "error" if hot else "accent" if way == "out" else "accent-2",
                    }
                )
        data = f"{number(max(*out, *into) / record.size_bytes)} times the data"
        return column(words(f"Busiest port so far: {data}", "note"), bars(rows, label=0.27))


def _rects(cells: Sequence[tuple[float, ...]], colours: Sequence[str], sentences: Sequence[str] = ()) -> Item:
    x0, x1, y0, y1, colour = (list(rect) for rect in zip(*cells, strict=True))
    more = speaking(sentences) if sentences else {}
    return Rects(x0, x1, y0, y1, [int(c) for c in colour], list(colours), **more)


def _framed(
    cells: Sequence[tuple[float, ...]], frames: Sequence[tuple[float, ...]]
) -> list[tuple[float, ...]]:
    """Return the cells that have a frame, again, so that they are drawn above it."""
    places = {(int(x0), round(y0)) for x0, _, y0, *_ in frames}
    return [cell for cell in cells if (int(cell[0]), round(cell[2] - 3)) in places]


def _sum(parts: Parts) -> str:
    """Return the GPUs that contributed, as text: ``0+1+2``, ``all 8``, ``2×0``."""
    if len(parts) > 2 and all(n == 1 for n in parts):
        return f"all {len(parts)}"
    named = [f"{n}×{rank}" if n > 1 else str(rank) for rank, n in enumerate(parts) if n]
    if len(named) > 2 and set(parts) <= {0, 1}:
        ranks = [rank for rank, n in enumerate(parts) if n]
        if ranks[-1] - ranks[0] == len(ranks) - 1:
            return f"{ranks[0]}…{ranks[-1]}"
    return "+".join(named)


def _short(parts: Parts) -> str:
    """Return the number of contributions, where there is no room for their names."""
    return count(sum(parts), "part")


def _sends(moves: Sequence[Move]) -> str:
    if not moves:
        return ""
    chunks, targets = ({getattr(m, name) for m in moves} for name in ("chunk", "target"))
    what = f"chunk {min(chunks)}" if len(chunks) == 1 else f"{len(chunks)} {noun(len(chunks), 'chunk')}"
    return f"{what} to GPU {min(targets)}" if len(targets) == 1 else f"{what} to {len(targets)} GPUs"


def _told(move: Move) -> str:
    how = "adds it" if move.add else "takes it"
    return f"GPU {move.source} sends chunk {move.chunk}, GPU {move.target} {how}"


def _recorded(record: Collective, known: Mapping[str, Any]) -> str:
    """Return the recorded time of the same operation; empty if it was not recorded."""
    rows = [row for row in known["all_reduce"] if row["size_bytes"] == record.size_bytes]
    if record.operation != "all-reduce" or not rows:
        return ""
    row = rows[0]
    told = []
    for head, ending in (("as one CUDA graph", "us"), ("message by message from Python", "python_us")):
        times = {words: row.get(f"{name}_{ending}") for name, words in SCHEDULES.items()}
        told.append((head, times))
    told.append((f"{known['ranks']}", {words: row.get(name) for name, words in LIBRARIES.items()}))
    lists = [
        f"{head}: {', '.join(f'{words} {duration(1000 * us)}' for words, us in times.items() if us)}"
        for head, times in told
        if any(times.values())
    ]
    gpus = f"{record.gpus} {known['device']}"
    return f"Recorded on {gpus}, {size(record.size_bytes)}, {'; '.join(lists)}." if lists else ""
