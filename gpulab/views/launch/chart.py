"""Launch chart: the blocks of one launch on their SMs over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import traitlets

from gpulab.views._base import View
from gpulab.views._text import count, duration, number, percent, product, shape, size, time_unit
from gpulab.views._waves import Waves, limit_bars, limiter_words, occupancy_words
from gpulab.views.parts import plots
from gpulab.views.parts.boxes import Box, Item, bars, column, fold, legend, numbers, row, slider, words
from virtualgpu.records import LaunchTrace

BLOCK_SIZES = range(32, 1025, 32)
LEFT_PX = 54
SM_PX = 2.3
GAP_PX = 12
RUNNING_PX = 54
SHADES = ("accent", "accent-2", "tail")
HINT = "Point at a block, or focus the chart and use the arrow keys."


class LaunchChart(View):
    """Where and when every block ran, in how many waves, and what limits the occupancy.

    Parameters
    ----------
    trace
        The launch.
    at_block_size
        Gives the launch for another number of threads a block (32 to 1024); with it the view has
        a slider. An error it raises is shown in the view, which keeps its last picture.
    compare
        Another launch beside it, such as the measured one beside the modelled one.

    Attributes
    ----------
    redraw_ms
        Milliseconds from the last move of the slider to its new picture, as the browser measured.
    """

    block_threads = traitlets.Int(0).tag(sync=True, echo_update=False)
    pictures = traitlets.Int(0).tag(sync=True)
    redraw_ms = traitlets.Float(0.0).tag(sync=True, echo_update=False)
    status = traitlets.Unicode("").tag(sync=True)

    def __init__(
        self,
        trace: LaunchTrace,
        at_block_size: Callable[[int], LaunchTrace] | None = None,
        compare: LaunchTrace | None = None,
    ) -> None:
        self.waves = Waves(trace)
        self.beside = Waves(compare) if compare is not None else None
        self._at_block_size = at_block_size
        sizes = sorted({*BLOCK_SIZES, product(trace.block)})
        warps = [f"{count(size, 'thread')} = {count(-(-size // 32), 'warp')}" for size in sizes]
        super().__init__(
            title=f"Launch of {trace.kernel_name}: blocks on SMs over time",
            source=trace.provenance.source,
            controls=[slider("Threads a block", "block_threads", sizes, warps)] if at_block_size else [],
            block_threads=product(trace.block),
        )
        self._show(trace)
        self.observe(self._on_block_threads, "block_threads")

    @property
    def trace(self) -> LaunchTrace:
        """The launch shown."""
        return self.waves.trace

    @property
    def compare(self) -> LaunchTrace | None:
        """The launch beside it."""
        return self.beside.trace if self.beside is not None else None

    @property
    def record(self) -> LaunchTrace | tuple[LaunchTrace, LaunchTrace]:
        """The launch, or both launches."""
        return self.trace if self.compare is None else (self.trace, self.compare)

    def lay_beside(self, other: Callable[[], LaunchTrace | None]) -> None:
        """Show the launch that `other` gives beside this one; an error it raises is shown in the view."""
        with self._lock, self._reporting("The launch beside it"):
            trace = other()
            if trace is not None:
                self.beside = Waves(trace)
                self._show(self.trace)

    def _on_block_threads(self, change: Any) -> None:
        with self._lock:
            try:
                with self._reporting(f"The launch with {change['new']} threads a block"):
                    if self._at_block_size is None:
                        raise TypeError("this view was made without at_block_size")
                    self._show(self._at_block_size(int(change["new"])))
            finally:
                # The browser waits for this number before it sends the slider's next place.
                self.pictures += 1

    def _show(self, trace: LaunchTrace) -> None:
        self.waves = Waves(trace)
        fit = f"Theoretical occupancy {percent(trace.occupancy.fraction)}"
        self.redraw(caption=_caption(trace, self.compare), status=f"{self.waves.wave_words()}. {fit}")

    def sentence(self) -> str:
        trace, waves = self.trace, self.waves
        text = (
            f"Launch of kernel {trace.kernel_name}: {count(waves.blocks, 'block')} of "
            f"{count(product(trace.block), 'thread')} on {count(trace.sm_count, 'SM')} in "
            f"{waves.wave_words()}, occupancy {percent(trace.occupancy.fraction)} "
            f"{limiter_words(trace.occupancy)}; {trace.provenance.label}"
        )
        return f"{text}, beside {self.compare.provenance.label}." if self.compare is not None else f"{text}."

    def describe(self) -> str:
        lines = [self.sentence()]
        for waves in filter(None, (self.waves, self.beside)):
            trace, fit = waves.trace, waves.trace.occupancy
            limits = ", ".join(f"{limit} {blocks}" for limit, blocks in fit.blocks_by_limit.items())
            lines.append(
                f"{trace.provenance.label[0].upper()}{trace.provenance.label[1:]}: grid {shape(trace.grid)}, "
                f"block {shape(trace.block)}, {number(trace.blocks_per_wave)} blocks at once, span "
                f"{duration(trace.span_ns)}, {percent(waves.idle_share)} of the block places idle."
            )
            lines.append(
                f"Theoretical occupancy {percent(fit.fraction)}, {occupancy_words(fit)}; "
                f"blocks per SM by limit: {limits}."
            )
            if trace.note:
                lines.append(trace.note)
        return "\n".join(lines)

    def draw(self) -> Box:
        shown = [self.waves] if self.beside is None else [self.waves, self.beside]
        span_ns = max(1, *(waves.trace.span_ns for waves in shown))
        return column(_legend(shown), row(*(
            _panel(waves, span_ns, narrow=len(shown) > 1) for waves in shown
        ), least=[300] * len(shown)))  # fmt: skip


def _legend(shown: list[Waves]) -> Box:
    """What the colours mean, of those that occur."""
    several = any(waves.full_waves > 1 for waves in shown)
    tail = any(waves.in_tail.any() for waves in shown)
    return legend([
        ("accent", "odd waves" if several else "first wave"),
        *([("accent-2", "even waves")] if several else []),
        *([("tail", "tail: last, partly filled wave")] if tail else []),
        ("grid", "idle"),
    ])  # fmt: skip


def _panel(waves: Waves, span_ns: int, *, narrow: bool) -> Box:
    """One launch: its picture, numbers and limits; the latter two below it where two stand side by side."""
    trace, fit = waves.trace, waves.trace.occupancy
    threads = f"{count(product(trace.block), 'thread')} a block"
    head = words(f"{threads}: {waves.wave_words()}", name="waves")
    chart = _chart(waves, span_ns, f"Blocks of {threads} on {trace.sm_count} SMs over time", narrow)
    used = (
        f"{number(fit.registers_per_thread)} registers a thread and {size(fit.shared_bytes)} of shared memory"
    )
    limits = column(
        words(f"Theoretical occupancy {percent(fit.fraction)}: {occupancy_words(fit)}, {limiter_words(fit)}",
              "strong"),
        words(f"Blocks per SM that each limit alone would allow, with {used} a block:", "note"),
        bars(limit_bars(fit), label=0.34),
        gap=3,
    )  # fmt: skip
    figures = numbers(waves.numbers(), least=150 if narrow else 200)
    if narrow:
        # The date and the driver stand in the caption: side by side both headings keep to one line.
        heading = f"{trace.provenance.source.capitalize()} on {trace.provenance.device}"
        return column(words(heading, "strong"), head, chart, figures,
                      fold("What limits the occupancy", limits, opened=False))  # fmt: skip
    return row(column(head, chart), column(figures, limits, gap=8), weights=[2.6, 1], least=[440, 226])


def _chart(waves: Waves, span_ns: int, label: str, narrow: bool) -> Box:
    trace = waves.trace
    domain = (0.0, float(span_ns))
    height = max(120.0, min(200.0 if narrow else 250.0, SM_PX * trace.sm_count))
    bottom = height + GAP_PX + RUNNING_PX
    each = height / max(1, trace.sm_count)
    sms = [at for at in plots.nice_ticks(trace.sm_count, 8) if at < trace.sm_count and at.is_integer()]
    unit, scale = time_unit(span_ns)
    axis = f"({unit}); dashed: blocks that fit at once"
    return plots.plot(
        bottom + 34,
        domain,
        _blocks(waves, height),
        *_running(waves, height + GAP_PX, domain),
        plots.y_ticks([max(6.0, (sm + 0.5) * each) for sm in sms], [str(int(sm)) for sm in sms], domain),
        plots.y_name("SM", height / 2, domain, LEFT_PX),
        plots.x_axis(bottom, span_ns, number, f"time since the first block started {axis}\ntime {axis}",
                     scale=scale, zoom=True),
        label=f"{label}: {waves.wave_words()}. Arrow keys go from block to block; + and - zoom.",
        left=LEFT_PX,
        hint=HINT,
        zoom=True,
    )  # fmt: skip


def _blocks(waves: Waves, height: float) -> Item:
    trace, order = waves.trace, waves.order
    # Four bytes hold times up to 2.1 s exactly, and halve what a slider sends.
    kind = np.int32 if max(trace.span_ns, waves.blocks) < 1 << 31 else np.float64
    start, end = trace.start_ns[order], trace.end_ns[order]
    (since, until, took), times = plots.texts_of(np.stack((start, end, end - start)), duration)
    # A sampled trace fills only some places; rows as wide as all of them would look empty.
    expected = trace.occupancy.blocks_per_sm if trace.sampled == 1 else 1
    return plots.spans(
        start.astype(kind), end.astype(kind), trace.sm_id[order].astype(np.int32),
        np.where(waves.in_tail, 2, waves.wave % 2).astype(np.uint8), SHADES,
        rows=trace.sm_count, top=0, height=height, lane=waves.slot.astype(np.uint16),
        lanes=max(1, expected, int(waves.slot.max(initial=0)) + 1),
        block=trace.block_index[order].astype(kind), wave=waves.wave + np.uint16(1), tail=waves.in_tail,
        since=since, until=until, took=took, times=times,
        say=["Block ", ["block"], " on SM ", ["row"], ": from ", ["since", "times"], " to ",
             ["until", "times"], " (", ["took", "times"], "), wave ", ["wave"],
             ["tail", ["", ", the tail"]], "."],
    )  # fmt: skip


def _running(waves: Waves, top: float, domain: tuple[float, float]) -> list[Item]:
    """Running blocks over time, how many fit, and the tail in words: its colour would not reach everyone."""
    times, running = waves.running()
    fits = waves.trace.blocks_per_wave
    bottom = top + RUNNING_PX
    scale = (RUNNING_PX - 6) / max(1.0, fits, float(running.max(initial=0)))
    line_y = bottom - fits * scale
    items = [
        plots.line(times, bottom - running * scale, "accent", fill="other", base=bottom, step=True, width=0),
        plots.rules([domain[0]], [line_y], [domain[1]], [line_y], dash=True),
        plots.y_ticks([line_y + 2, bottom - 3], [number(fits), "0"], domain),
        plots.y_name("running", (top + bottom) / 2, domain, LEFT_PX),
    ]
    if waves.in_tail.any():
        at = float(waves.trace.start_ns[waves.order][waves.in_tail.argmax()])
        late = at > 0.9 * domain[1]
        name, anchor, dx = ("◂ tail", "end", -4) if late else ("tail ▸", "start", 4)
        items.append(plots.rules([at], [top - GAP_PX], [at], [bottom], "fg"))
        items.append(plots.labels([at], [bottom - 9], [name], anchor=anchor, dx=dx))
    return items


def _caption(trace: LaunchTrace, compare: LaunchTrace | None) -> str:
    first = f"Placement and times {trace.provenance.label}"
    step = f"; timer step {trace.timer_step_ns} ns" if trace.timer_step_ns > 1 else ""
    beside = f"; beside it {compare.provenance.label}" if compare is not None else ""
    drawn = f" Every {trace.sampled}th block is drawn." if trace.sampled > 1 else ""
    return f"{first}{step}{beside}.{drawn} {trace.note}".strip()
