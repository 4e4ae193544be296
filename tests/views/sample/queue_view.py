"""Queue view: what waited and ran on each stream, and which piece of work needed which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpulab.views._base import View
from gpulab.views.parts.boxes import Box, column, fold, legend, numbers, row, table
from gpulab.views.parts.dag import draw_dag
from gpulab.views.parts.items import Labels, Spans
from gpulab.views.parts.plots import make_x_axis, plot
from gpulab.words import count, duration, number, time_unit
from virtualgpu.records import Provenance

KINDS = {"kernel": "accent", "copy": "good-text", "memset": "tail-text"}
ROW_PX = 26


@dataclass(frozen=True, slots=True)
class Work:
    """One piece of work on a stream."""

    name: str
    kind: str
    stream: int
    start_ns: int
    end_ns: int
    after: tuple[str, ...] = ()


class QueueView(View):
    """Work on streams over time, with what needed what."""

    def __init__(self, work: Sequence[Work], provenance: Provenance) -> None:
        self.work = tuple(sorted(work, key=lambda piece: piece.start_ns))
        self.provenance = provenance
        super().__init__(
            title="Work on streams", source=provenance.source, caption=f"Times {provenance.label}."
        )
        self.redraw()

    @property
    def record(self) -> tuple[Work, ...]:
        return self.work

    @property
    def span_ns(self) -> int:
        return max(piece.end_ns for piece in self.work)

    def sentence(self) -> str:
        streams = len({piece.stream for piece in self.work})
        return (
            f"{count(len(self.work), 'piece')} of work on {count(streams, 'stream')} in "
            f"{duration(self.span_ns)}; {self.provenance.label}."
        )

    def describe(self) -> str:
        return "\n".join(
            [
                self.sentence(),
                *(
                    f"{w.name} ({w.kind}) on stream {w.stream}, "
                    f"{duration(w.start_ns)} to {duration(w.end_ns)}."
                    for w in self.work
                ),
            ]
        )

    def draw(self) -> Box:
        busy = sum(piece.end_ns - piece.start_ns for piece in self.work)
        rows = [(w.name, w.kind, str(w.stream), duration(w.end_ns - w.start_ns)) for w in self.work]
        nodes = {w.name: (w.name, KINDS[w.kind]) for w in self.work}
        edges = [(before, w.name) for w in self.work for before in w.after]
        return column(
            legend((colour, kind) for kind, colour in KINDS.items()),
            self._times(),
            row(
                numbers(
                    [("Span", duration(self.span_ns), ""), ("Busy", duration(busy), "summed over streams")]
                ),
                table(rows, headings=("work", "kind", "stream", "time")),
                weights=[1, 2],
            ),
            fold("What needs what", draw_dag(nodes, edges, label="Pieces of work and what they wait for")),
            gap=10,
        )

    def _times(self) -> Box:
        streams = sorted({piece.stream for piece in self.work})
        start = np.array([w.start_ns for w in self.work])
        end = np.array([w.end_ns for w in self.work])
        height = ROW_PX * len(streams)
        domain = (0.0, float(self.span_ns))
        unit, scale = time_unit(self.span_ns)
        rows_ = np.array([streams.index(w.stream) for w in self.work])
        kinds = np.array([list(KINDS).index(w.kind) for w in self.work])
        middle = ROW_PX * (rows_ + 0.5)
        return plot(
            height + 34,
            domain,
            Spans(
                start,
                end,
                rows_,
                kinds,
                list(KINDS.values()),
                rows=len(streams),
                top=0,
                height=height,
                columns={"name": np.arange(len(self.work))},
                say=[["name", [w.name for w in self.work]], ": ", ["x0", "time"], " to ", ["x1", "time"]],
            ),
            Labels(start, middle, [w.name for w in self.work], colour="on-accent", dx=4, room=end - start),
            Labels(
                [0.0] * len(streams),
                [ROW_PX * (i + 0.5) for i in range(len(streams))],
                [f"stream {s}" for s in streams],
                anchor="end",
                dx=-5,
                pin=True,
            ),
            make_x_axis(height, self.span_ns, number, f"time ({unit})", scale=scale, zoom=True),
            label=self.sentence(),
            left=70,
            zoom=True,
            hint="Point at a piece of work.",
        )


def example() -> QueueView:
    """Two streams, four pieces of work."""
    return QueueView(
        [
            Work("upload", "copy", 1, 0, 4_000),
            Work("square", "kernel", 1, 4_000, 9_000, ("upload",)),
            Work("clear", "memset", 2, 0, 1_000),
            Work("sum", "kernel", 2, 9_000, 12_000, ("square", "clear")),
        ],
        Provenance("modelled", "A100-SXM4-80GB", "virtual GPU"),
    )
