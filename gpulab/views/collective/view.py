"""The collective view: the chunks of each GPU after each step, and the traffic of each port."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import traitlets

from gpulab.views._base import View
from gpulab.views.parts.boxes import Box, Plot, bars, column, legend, player, row, switch, words
from gpulab.views.parts.items import Item, Labels, Rects, Ring
from gpulab.views.parts.palette import choose_ink
from gpulab.views.parts.plots import make_labels, make_sentence_args, plot
from gpulab.words import count, duration, listing, number, size
from virtualgpu.records.traffic.collective import Collective, Move, Parts
from virtualgpu.records.traffic.ports import Route

COLOURS = ("accent", "warn", "good", "purple", "accent-2", "tail", "other", "range")
ROW_PX = 32
STEPS_HEIGHT_PX = 30
LEFT_PX = 46
# Smallest and largest height of the circle of GPUs.
RING_SIZE_PX = (200, 270)
_NO_STEPS_TEXT = "the library reports neither chunks nor steps"
# Columns of such a record, in microseconds.
SCHEDULE_NAMES = {"ring": "ring", "tree": "tree", "naive": "all through GPU 0"}
LIBRARY_NAMES = {"nccl_us": "NCCL with NVLS off", "torch_us": "torch.distributed, NVLS off"}
MAX_MOVES = 20
BUSY_PORT_FACTOR = 1.5  # times the mean of all ports, and more than the data


class CollectiveView(View):
    """A view of a collective operation. The view shows the chunks of each GPU after each step, and the
    traffic of the ports.

    Parameters
    ----------
    record
        The operation.
    recordings
        Recordings of the same number of GPUs of this model, in the format of `gpulab.lab.links.records`.
        Recordings of the same operation and size are shown below the picture.

    Attributes
    ----------
    step
        The number of completed steps in the displayed state.
    """

    step = traitlets.Int(0).tag(sync=True, echo_update=False)

    def __init__(self, record: Collective, recordings: Sequence[Mapping[str, Any]] = ()) -> None:
        self._collective = record
        self._recorded_text = " ".join(
            filter(None, (_recorded_text(record, recording) for recording in recordings))
        )
        self._states = record.states
        moves = (move for step in record.steps for move in step.moves)
        self._gpu_pairs = [*dict.fromkeys((move.source, move.target) for move in moves)]
        self._links: tuple[Route, ...] = tuple(
            dict.fromkeys(crossing.over for crossing in record.traffic.crossings)
        )
        clock_text = "without the time of the host"
        if record.provenance.source == "measured":
            clock_text = "by the host's clock"
        if record.in_one_go_ns:
            clock_text += f"; as one CUDA graph, in which they may overlap, {duration(record.in_one_go_ns)}"
        if record.from_host_ns:
            clock_text += f"; without waiting between steps, from Python, {duration(record.from_host_ns)}"
        steps_text = f"Steps run one after another, {clock_text}"
        if record.opaque:
            steps_text = f"One call of {record.algorithm}, between events"
            if record.provenance.source == "modelled":
                steps_text += ", after records with NVLink SHARP (NVLS) off"
        super().__init__(
            title=f"{record.operation}, {record.algorithm}, {record.gpus} GPUs",
            caption=f"{steps_text}; times {record.provenance.label}. Bytes are {record.bytes_are}.",
            source=record.provenance.source,
        )
        self.redraw()

    @property
    def record(self) -> Collective:
        """The record of the collective operation."""
        return self._collective

    def sentence(self) -> str:
        record = self._collective
        wrong_ranks = [rank for rank, is_right in enumerate(record.right) if not is_right]
        result_text = f"GPU {wrong_ranks[0]} has a wrong result" if wrong_ranks else "every result is correct"
        steps_text = "one call" if record.opaque else count(len(record.steps), "step")
        mode_text = " in one go" if record.in_one_go_ns or record.from_host_ns else ""
        return (
            f"{record.operation} of {size(record.size_bytes)} on {record.gpus} GPUs by {record.algorithm}: "
            f"{steps_text}, {duration(record.time_ns)}{mode_text}, {number(record.volume)} times the "
            f"data through the busiest port over {listing(self._links) or 'none'}, {record.bytes_are}; "
            f"{result_text}; {record.provenance.label}."
        )

    def describe(self) -> str:
        lines = [self.sentence(), *([self._recorded_text] if self._recorded_text else [])]
        for step_number, step in enumerate(self._collective.steps, 1):
            moves_text = "; ".join(map(_move_text, step.moves)) or _NO_STEPS_TEXT
            lines.append(f"Step {step_number}, {duration(step.time_ns)}: {moves_text}.")
        sent_bytes, received_bytes = self._sum_port_bytes(len(self._collective.steps))
        for rank in range(self._collective.gpus):
            traffic_text = f"{size(sent_bytes[rank])} out, {size(received_bytes[rank])} in"
            lines.append(f"GPU {rank}: {traffic_text}. {self._result_sentence(rank)}")
        return "\n".join(lines)

    def _result_sentence(self, rank: int) -> str:
        """Return a sentence that states whether a GPU's result is correct, or which chunk is wrong first."""
        if self._collective.right[rank]:
            return "Its result is correct."
        for chunk, contributions in enumerate(self._states[-1][rank]):
            expected_parts = self._collective.expected_contributions(rank, chunk)
            if expected_parts not in (None, contributions):
                return f"Its chunk {chunk} is {_sum_text(contributions)}."
        return "Its result is wrong."

    def _sum_port_bytes(self, steps: int) -> tuple[list[int], list[int]]:
        """Return the bytes that each GPU has sent and the bytes that it has received in the first steps."""
        record = self._collective
        step_ends = [*record.begins, len(record.traffic.crossings)]
        sent_bytes = [0] * record.gpus
        received_bytes = [0] * record.gpus
        for crossing in record.traffic.crossings[: step_ends[steps]]:
            sent_bytes[crossing.source] += crossing.size_bytes
            received_bytes[crossing.target] += crossing.size_bytes
        return sent_bytes, received_bytes

    def draw(self) -> Box:
        record = self._collective
        step_boxes = {step_index: self._draw_state(step_index) for step_index in range(len(record.steps) + 1)}
        wrong_texts = [
            f"GPU {rank} is wrong. {self._result_sentence(rank)}"
            for rank, is_right in enumerate(record.right)
            if not is_right
        ]
        return column(
            words(" ".join(wrong_texts[:2]), "strong") if wrong_texts else None,
            None if record.opaque else player("step", len(record.steps)),
            self._draw_steps(),
            legend(
                [
                    ("fg", "arrived in this step", "outline"),
                    ("accent-pale", "pale: initial data, or part of a result"),
                    ("accent", "full: finished; each chunk has its own colour"),
                ]
            ),
            switch("step", self.step, step_boxes),
            words(self._recorded_text, "note") if self._recorded_text else None,
            words(
                "Play with Space, click a step, or focus the steps and use the arrow keys.",
                "note",
                only="page",
            ),
        )

    def _draw_steps(self) -> Plot:
        steps = self._collective.steps
        step_positions = np.arange(len(steps) + 1)
        step_sentences = ["before the first step"]
        step_sentences += [
            f"after step {index}, which takes {duration(step.time_ns)}" for index, step in enumerate(steps, 1)
        ]
        step_names = ["begin", *(str(index) for index in step_positions[1:])]
        return plot(
            STEPS_HEIGHT_PX,
            (0, len(step_positions)),
            Rects(
                step_positions,
                step_positions + 1,
                0 * step_positions + 2,
                0 * step_positions + STEPS_HEIGHT_PX - 6,
                "grid",
                inset=1,
                outline=True,
                **make_sentence_args(step_sentences),
            ),
            make_labels(
                [
                    (index + 0.5, STEPS_HEIGHT_PX / 2 - 2, step_name, 1)
                    for index, step_name in enumerate(step_names)
                ]
            ),
            label="Steps",
            trait="step",
            values=step_positions.tolist(),
            chosen=int(self.step),
        )

    def _draw_state(self, step_count: int) -> Box:
        """Return the picture of the state after a number of steps: headline, chunks and ports."""
        record = self._collective
        if step_count == 0:
            headline = f"Before the first step: each GPU has {size(record.size_bytes)} of its own data."
        else:
            step = record.steps[step_count - 1]
            time_text = duration(step.time_ns)
            chunks_text = f"{count(len(step.moves), 'chunk')} in flight"
            headline = f"Step {step_count} of {len(record.steps)}: {chunks_text}, {time_text}."
            if step.copies_ns:
                busiest_port_text = (
                    f"{duration(step.copies_ns)} for the busiest port, {time_text} with what is added."
                )
                headline = headline.replace(f"{time_text}.", busiest_port_text)
            if record.opaque:
                headline = f"After the call, {time_text}: {_NO_STEPS_TEXT}."
        return column(
            words(headline, "strong"),
            row(
                self._draw_ring(step_count),
                self._draw_chunks(step_count),
                self._draw_ports(step_count),
                weights=[1, 1.6, 0.8],
                least=[200, 410, 160],
            ),
        )

    def _draw_ring(self, step_count: int) -> Plot:
        """Return a drawing of the GPUs on a circle, with the chunks that one step moves."""
        record = self._collective
        moves = record.steps[step_count - 1].moves if step_count else ()
        texts_of_moves = [_move_text(move) for move in moves[:MAX_MOVES]]
        texts_of_moves += [f"and {len(moves) - MAX_MOVES} more"] if len(moves) > MAX_MOVES else []
        return plot(
            min(max(ROW_PX * record.gpus, RING_SIZE_PX[0]), RING_SIZE_PX[1]),
            (0, 1),
            Ring(
                names=[f"GPU {rank}\n{rank}" for rank in range(record.gpus)],
                links=self._gpu_pairs,
                source=[move.source for move in moves],
                target=[move.target for move in moves],
                text=[str(move.chunk) for move in moves],
                colour=[move.chunk % len(COLOURS) for move in moves],
                colours=COLOURS,
                step=step_count,
            ),
            left=0,
            right=0,
            label="; ".join(texts_of_moves) or "GPUs on a circle. Nothing has moved.",
        )

    def _draw_chunks(self, step_count: int) -> Box:
        record = self._collective
        chunk_count = len(record.chunk_bytes)
        cell_margin = 0.002 * chunk_count
        moves = record.steps[step_count - 1].moves if step_count else ()
        received_chunks = {(move.target, move.chunk) for move in moves}
        chunk_cells = []
        frame_cells = []
        chunk_colours = [*COLOURS, *(f"{name}-pale" for name in COLOURS)]
        chunk_sentences = []
        texts_by_colour: dict[str, list[tuple[float, float, str, float]]] = {}
        for rank in range(record.gpus):
            row_top = ROW_PX * rank
            for chunk in range(chunk_count):
                contributions = self._states[step_count][rank][chunk]
                has_final_sum = contributions == self._find_finished_parts(chunk)
                colour_index = chunk % len(COLOURS) + (0 if has_final_sum else len(COLOURS))
                chunk_box = (
                    chunk + 2 * cell_margin,
                    chunk + 1 - 2 * cell_margin,
                    row_top + 4,
                    row_top + ROW_PX - 4,
                )
                if (rank, chunk) in received_chunks:
                    frame_cells.append(
                        (
                            chunk + 0.5 * cell_margin,
                            chunk + 1 - 0.5 * cell_margin,
                            chunk_box[2] - 3,
                            chunk_box[3] + 3,
                            0,
                        )
                    )
                chunk_cells.append((*chunk_box, colour_index))
                texts_by_colour.setdefault(choose_ink(chunk_colours[colour_index]), []).append(
                    (
                        chunk + 0.5,
                        row_top + ROW_PX / 2,
                        f"{_sum_text(contributions)}\n{_count_text(contributions)}",
                        0.9,
                    )
                )
                chunk_sentences.append(
                    f"GPU {rank}, chunk {chunk}: "
                    f"{_sum_text(contributions)}{', finished' if has_final_sum else ''}"
                )
        plot_items: list[Item | None] = [_make_rects(chunk_cells, chunk_colours, chunk_sentences)]
        plot_items += [_make_rects(frame_cells, ["fg"])] if frame_cells else []
        plot_items += (
            [_make_rects(_find_framed_cells(chunk_cells, frame_cells), chunk_colours)] if frame_cells else []
        )
        plot_items += [
            make_labels(chunk_labels, colour=text_colour, size=10)
            for text_colour, chunk_labels in texts_by_colour.items()
        ]
        gpu_ranks = range(record.gpus)
        row_centres = [ROW_PX * (rank + 0.5) for rank in gpu_ranks]
        plot_items += [
            Labels(
                [0.0] * record.gpus,
                row_centres,
                [f"GPU {rank}" for rank in gpu_ranks],
                anchor="end",
                dx=-5,
                pin=True,
            ),
        ]
        return plot(
            ROW_PX * record.gpus,
            (0, chunk_count),
            *plot_items,
            left=LEFT_PX,
            label=f"Chunks of each GPU after {count(step_count, 'step')}",
            hint="Point at a chunk, or use the arrow keys, to see which GPUs' data it sums.",
        )

    def _find_finished_parts(self, chunk: int) -> Parts | None:
        """Return the contributions that a finished chunk must contain, or None if no GPU needs it."""
        expected_parts = (
            self._collective.expected_contributions(rank, chunk) for rank in range(self._collective.gpus)
        )
        return next((contributions for contributions in expected_parts if contributions is not None), None)

    def _draw_ports(self, step_count: int) -> Box:
        record = self._collective
        sent_bytes, received_bytes = self._sum_port_bytes(step_count)
        busiest_bytes = record.traffic.busiest_bytes or 1
        mean_bytes = (sum(sent_bytes) + sum(received_bytes)) / (2 * record.gpus)
        bar_rows = []
        for rank in range(record.gpus):
            for direction, moved_bytes in (("out", sent_bytes[rank]), ("in", received_bytes[rank])):
                is_busy = moved_bytes > max(BUSY_PORT_FACTOR * mean_bytes, record.size_bytes)
                bar_rows.append(
                    {
                        "label": f"{rank} {direction}",
                        "share": moved_bytes / busiest_bytes,
                        "value": size(moved_bytes),
                        "mark": "hot" if is_busy else "",
                        "colour": "error" if is_busy else "accent" if direction == "out" else "accent-2",
                    }
                )
        volume_text = f"{number(max(*sent_bytes, *received_bytes) / record.size_bytes)} times the data"
        heading = f"Ports by GPU and direction; busiest so far: {volume_text}"
        return column(words(heading, "note"), bars(bar_rows, label=0.35))


def _make_rects(
    cells: Sequence[tuple[float, ...]], colours: Sequence[str], sentences: Sequence[str] = ()
) -> Item:
    x0, x1, y0, y1, colour_indices = (list(rect) for rect in zip(*cells, strict=True))
    options = make_sentence_args(sentences) if sentences else {}
    return Rects(
        x0, x1, y0, y1, [int(colour_index) for colour_index in colour_indices], list(colours), **options
    )


def _find_framed_cells(
    cells: Sequence[tuple[float, ...]], frames: Sequence[tuple[float, ...]]
) -> list[tuple[float, ...]]:
    """Return the cells that have a frame, which are drawn a second time above the frame."""
    frame_positions = {(int(x0), round(y0)) for x0, _, y0, *_ in frames}
    return [cell for cell in cells if (int(cell[0]), round(cell[2] - 3)) in frame_positions]


def _sum_text(contributions: Parts) -> str:
    """Return the GPUs that contributed, as text: ``0+1+2``, ``all 8``, ``2×0``."""
    if len(contributions) > 2 and all(contribution_count == 1 for contribution_count in contributions):
        return f"all {len(contributions)}"
    rank_texts = [
        f"{contribution_count}×{rank}" if contribution_count > 1 else str(rank)
        for rank, contribution_count in enumerate(contributions)
        if contribution_count
    ]
    if len(rank_texts) > 2 and set(contributions) <= {0, 1}:
        gpu_ranks = [rank for rank, contribution_count in enumerate(contributions) if contribution_count]
        if gpu_ranks[-1] - gpu_ranks[0] == len(gpu_ranks) - 1:
            return f"{gpu_ranks[0]}…{gpu_ranks[-1]}"
    return "+".join(rank_texts)


def _count_text(contributions: Parts) -> str:
    """Return the number of contributions as text, for chunks that are too small for names."""
    return count(sum(contributions), "part")


def _move_text(move: Move) -> str:
    transfer_text = "adds it" if move.add else "takes it"
    return f"GPU {move.source} sends chunk {move.chunk}, GPU {move.target} {transfer_text}"


def _recorded_text(record: Collective, recording: Mapping[str, Any]) -> str:
    """Return a sentence with the recorded times of the same operation; empty without a recording."""
    rows = [row for row in recording["all_reduce"] if row["size_bytes"] == record.size_bytes]
    if record.operation != "all-reduce" or not rows:
        return ""
    row = rows[0]
    times_by_method = []
    for method, key_suffix in (("as one CUDA graph", "us"), ("message by message from Python", "python_us")):
        times_us = {schedule: row.get(f"{name}_{key_suffix}") for name, schedule in SCHEDULE_NAMES.items()}
        times_by_method.append((method, times_us))
    times_by_method.append(
        (f"{recording['ranks']}", {schedule: row.get(name) for name, schedule in LIBRARY_NAMES.items()})
    )
    time_lists = []
    for method, times_us in times_by_method:
        time_texts = [
            f"{schedule} {duration(1000 * time_us)}" for schedule, time_us in times_us.items() if time_us
        ]
        if time_texts:
            time_lists.append(f"{method}: {', '.join(time_texts)}")
    gpus_text = f"{record.gpus} {recording['device']}"
    return (
        f"Recorded on {gpus_text}, {size(record.size_bytes)}, {'; '.join(time_lists)}." if time_lists else ""
    )
