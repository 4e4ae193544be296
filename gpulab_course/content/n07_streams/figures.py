"""Figures of notebook 07 in addition to the views of gpulab: three clocks, and the conveyor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import traitlets
from matplotlib.figure import Figure

from gpulab import session
from gpulab.lab.timeline import timeline
from gpulab.views.parts import boxes
from gpulab.views.parts.palette import light
from gpulab.views.timeline.steered import SteeredTimeline
from gpulab_course.content.n07_streams import clocks, work
from gpulab_course.teach.picture import Picture
from virtualgpu.records import Activity, Provenance, Timeline

_STYLES = (("warn", "o", 6, "-"), ("accent", "s", 11, "-"), ("good", "^", 6, "--"))
PIECES = (1, 2, 4, 8, 16)
ELEMENTS = 1 << 19
ROUNDS = 32


def three_clocks(
    turns: Sequence[int], times_ms: Mapping[str, Sequence[float]], origin: Provenance
) -> Picture:
    """Draw what clocks show for more and more work.

    Parameters
    ----------
    turns
        Turns in the kernel, one number a point.
    times_ms
        Name of a clock -> what it showed, in ms.
    origin
        Where the times come from.
    """
    figure = Figure(figsize=(7.6, 3.4), dpi=100)
    axes = figure.add_axes((0.1, 0.17, 0.87, 0.74))
    for (name, points), (colour, mark, size, line) in zip(times_ms.items(), _STYLES, strict=False):
        # Two of them nearly coincide: hollow marks around small ones.
        axes.plot(
            turns,
            points,
            line,
            marker=mark,
            markersize=size,
            color=light(colour),
            label=name,
            markerfacecolor="none" if size > 6 else light(colour),
        )
    axes.set_xlabel("turns in the kernel")
    axes.set_ylabel("ms")
    axes.set_ylim(bottom=0)
    axes.set_title(origin.label, fontsize=10, color=light("muted"))
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, loc="upper left")
    said = "; ".join(
        f"{name} from {points[0]:.3g} to {points[-1]:.3g} ms" for name, points in times_ms.items()
    )
    return Picture.of(
        figure, f"Three clocks, {turns[0]:,} to {turns[-1]:,} turns in the kernel, {origin.label}: {said}."
    )


def conveyor(pieces: int, pinned: bool = True, waits: bool = True) -> Timeline:
    """Numbers in pieces through three stations: a stream that copies in, one that works, one that copies out.

    Parameters
    ----------
    pieces
        How many.
    pinned
        Whether the host's arrays are page-locked.
    waits
        Whether the second station waits for the first one.
    """
    cp = session.cp()
    empty = session.cupyx().empty_pinned if pinned else np.empty
    x, y = (empty(ELEMENTS, np.float32) for _ in range(2))
    x[...] = np.linspace(0.1, 0.9, ELEMENTS, dtype=np.float32)
    into, working, out = (cp.cuda.Stream(non_blocking=True) for _ in range(3))
    size = -(-ELEMENTS // pieces)
    on_device = [cp.zeros(size, dtype=cp.float32) for _ in range(pieces)]
    work.simmer(on_device[0])  # warm up
    cp.cuda.Device().synchronize()
    with timeline() as seen:
        for number, piece in enumerate(on_device):
            part = slice(number * size, (number + 1) * size)
            piece.set(x[part], stream=into)
            if waits:
                working.wait_event(into.record())
            with working:
                work.simmer(piece, ROUNDS)
            out.wait_event(working.record())
            piece.get(stream=out, out=y[part], blocking=False)
        for stream in (into, working, out):
            stream.synchronize()
    return seen.record


def too_early(record: Timeline) -> list[tuple[int, int]]:
    """Return the indices of copies to the device, each with that of a kernel that started before its end."""
    copies = [at for at, a in enumerate(record.activities) if a.copy_kind == "HtoD"]
    kernels = [at for at, a in enumerate(record.activities) if a.kind == "CONCURRENT_KERNEL"]
    by_number: Any = lambda at: record.activities[at].correlation_id  # noqa: E731
    pairs = zip(sorted(copies, key=by_number), sorted(kernels, key=by_number), strict=False)
    return [(a, b) for a, b in pairs if record.activities[b].start_ns < record.activities[a].end_ns]


def running_at_once(activities: Sequence[Activity]) -> int:
    """The most operations that ran at the same time."""
    return max((sum(b.start_ns <= a.start_ns < b.end_ns for b in activities) for a in activities), default=0)


def when_it_starts(record: Timeline) -> str:
    """When the last kernel that was launched started, in the words of the prediction."""
    *others, last = sorted(record.activities, key=lambda a: a.correlation_id)
    if last.start_ns >= max(a.end_ns for a in others):
        return "after all four"
    return (
        "when running blocks end" if any(a.start_ns < last.start_ns < a.end_ns for a in others) else "at once"
    )


def played(program: Callable[..., Any], steps: int) -> Timeline:
    """Run a program, such as ``exercises.rollout``, on two environments for some steps."""
    cp = session.cp()
    cupyx = session.cupyx()

    def pinned(array: Any) -> Any:
        copy = cupyx.empty_pinned(array.shape, array.dtype)
        copy[...] = array
        return copy

    starts = np.linspace(0.1, 0.9, 64, dtype=np.float32).reshape(2, 32)
    envs = [work.Environment(start, pinned, clocks.busy) for start in starts]
    program(envs, work.decide, 1)  # warm up
    cp.cuda.Device().synchronize()
    with timeline() as seen:
        program(envs, work.decide, steps)
    return seen.record


class Conveyor(SteeredTimeline):
    """The conveyor, with controls for its pieces, its memory, and the event between two stations."""

    pieces = traitlets.Int().tag(sync=True)
    pinned = traitlets.Int(1).tag(sync=True)
    waits = traitlets.Int(1).tag(sync=True)

    def __init__(self, pieces: int = 1) -> None:
        self._seen = {(pieces, 1, 1): conveyor(pieces)}
        self._here = session.here()
        super().__init__(self._seen[pieces, 1, 1])
        self.pieces = pieces
        self.steer(
            boxes.slider("Pieces", "pieces", PIECES, [str(n) for n in PIECES]),
            boxes.slider("Host memory", "pinned", (0, 1), ("pageable", "page-locked")),
            boxes.slider("Work waits for its copy", "waits", (0, 1), ("no: the event is missing", "yes")),
        )

    def at(self, pieces: int, pinned: bool = True, waits: bool = True) -> Timeline:
        """Return the timeline of one setting, which is run at the first call."""
        key = (pieces, int(pinned), int(waits))
        if key not in self._seen:
            with self._here():
                self._seen[key] = conveyor(pieces, pinned, waits)
        return self._seen[key]

    def chosen(self) -> str:
        return f"The conveyor with {self.pieces} pieces"

    def show_chosen(self) -> None:
        """Show the conveyor as it is set."""
        record = self.at(self.pieces, bool(self.pinned), bool(self.waits))
        one = self.at(1, bool(self.pinned)).span_ns
        early = too_early(record)
        summary = (
            f"{self.pieces} {'piece' if self.pieces == 1 else 'pieces'}, "
            f"{'page-locked' if self.pinned else 'pageable'} memory: {record.span_ns / 1e3:,.0f} µs, "
            f"{one / max(1, record.span_ns):.2f} times as fast as in one piece."
        )
        if early:
            summary += f" {len(early)} of {self.pieces} kernels began before what they read was there."
        self.show(record, summary=summary, faults=early)
