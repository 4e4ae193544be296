"""Static picture of a launch: blocks on SMs over time, resident blocks, and occupancy limits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from gpulab.views import _figure as f
from gpulab.views._limit_figure import limit_bars
from gpulab.views._text import duration, percent
from gpulab.views._waves import Waves, limiter_words, occupancy_words
from virtualgpu.records import LaunchTrace

WAVE_COLOURS = (f.BLUE, f.SKY)
MOST_ROWS = 640
COLUMNS = 1400
TIME_UNITS = (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0))


def draw(trace: LaunchTrace, compare: LaunchTrace | None, caption: str) -> Figure:
    traces = [trace] if compare is None else [trace, compare]
    fig = f.figure(486, f"Launch of {trace.kernel_name}: blocks on SMs over time", f.wrapped(caption))
    span = max(1, *(t.span_ns for t in traces))
    if compare is None:
        _placement(fig, trace, 68, 552, span, beside=False)
        _numbers(fig, trace, 660)
    else:
        for at, each in enumerate(traces):
            _placement(fig, each, 68 + at * 432, 372, span, beside=True)
    return fig


def _placement(
    fig: Figure, trace: LaunchTrace, left: float, width: float, span_ns: int, *, beside: bool
) -> None:
    waves = Waves(trace)
    unit, scale = next((u for u in TIME_UNITS if span_ns >= u[1]), TIME_UNITS[-1])
    top = 98 if beside else 78
    ax = f.axes(fig, left, top, width, 338 - top)
    extent = (0.0, span_ns / scale, trace.sm_count - 0.5, -0.5)
    ax.imshow(_raster(waves, span_ns), extent=extent, aspect="auto", interpolation="nearest")
    ax.set_ylabel("SM", size=8.5, color=f.INK)
    ax.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.tick_params(labelbottom=False)
    words = waves.wave_words()
    if beside:
        label = trace.provenance.label
        facts = f"{words}; span {duration(trace.span_ns)}; idle {percent(waves.idle_share)}"
        ax.text(
            0,
            1.16,
            f"{label[0].upper()}{label[1:]}",
            transform=ax.transAxes,
            size=8.5,
            weight="bold",
            color=f.INK,
        )
        ax.text(0, 1.095, facts, transform=ax.transAxes, size=7.6, color=f.INK)
    else:
        ax.text(0, 1.1, f"{words[0].upper()}{words[1:]}", transform=ax.transAxes, size=8.5, color=f.INK)
    _legend(ax, waves)
    below = f.axes(fig, left, 350, width, 68, sharex=ax)
    times, running = _resident(waves)
    below.fill_between(times / scale, running, step="post", color=f.SKY, alpha=0.6, linewidth=0)
    below.step(times / scale, running, where="post", color=f.BLUE, linewidth=1)
    below.axhline(trace.blocks_per_wave, color=f.MUTED, linewidth=0.9, linestyle=(0, (4, 3)))
    below.set_ylim(0, 1.12 * max(1, trace.blocks_per_wave, running.max(initial=0)))
    below.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    below.set_ylabel("running\nblocks", size=8, color=f.INK)
    since = "time" if beside else "time since the first block started"
    below.set_xlabel(f"{since} ({unit}); dashed: blocks that fit at once", size=8.5, color=f.INK)
    below.set_xlim(0, span_ns / scale)


def _legend(ax: Axes, waves: Waves) -> None:
    handles = [Patch(facecolor=WAVE_COLOURS[0], label="odd waves" if waves.full_waves > 1 else "first wave")]
    if waves.full_waves > 1:
        handles.append(Patch(facecolor=WAVE_COLOURS[1], label="even waves"))
    if waves.in_tail.any():
        handles.append(Patch(facecolor=f.VERMILION, label="tail"))
    handles.append(Patch(facecolor=f.FAINT, label="idle"))
    ax.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(-0.008, 0.995),
        ncols=4,
        fontsize=8,
        frameon=False,
        handlelength=1,
        handleheight=1,
        columnspacing=1.4,
        borderpad=0.2,
    )


def _raster(waves: Waves, span_ns: int) -> npt.NDArray[np.float64]:
    """Blocks painted into pixels: a band a SM, a row a place on it (several where they are many)."""
    trace, order = waves.trace, waves.order
    expected = trace.occupancy.blocks_per_sm if trace.sampled == 1 else 1
    places = max(1, expected, int(waves.slot.max(initial=0)) + 1)
    rows_per_sm = max(1, min(places, MOST_ROWS // max(1, trace.sm_count)))
    image = np.empty((max(1, trace.sm_count) * rows_per_sm, COLUMNS, 3))
    image[:] = to_rgb(f.FAINT)
    colours = np.array([to_rgb(c) for c in (*WAVE_COLOURS, f.VERMILION)])
    colour = colours[np.where(waves.in_tail, 2, waves.wave % 2)]
    row = trace.sm_id[order] * rows_per_sm + waves.slot * rows_per_sm // places
    pixel = COLUMNS / span_ns
    start = np.floor(trace.start_ns[order] * pixel).astype(np.int64)
    end = np.maximum(start + 1, np.floor(trace.end_ns[order] * pixel).astype(np.int64))
    # A block wide enough to be seen apart leaves a column free before the next one.
    end = np.where(end - start >= 8, end - 1, end)
    drawable = (trace.sm_id[order] >= 0) & (trace.sm_id[order] < trace.sm_count)
    for r, a, b, c in zip(row[drawable], start[drawable], end[drawable], colour[drawable], strict=True):
        image[r, a:b] = c
    return image


def _resident(waves: Waves) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Running blocks over time as a staircase."""
    trace = waves.trace
    times = np.concatenate([trace.start_ns, trace.end_ns])
    change = np.concatenate([np.ones(trace.start_ns.size), -np.ones(trace.end_ns.size)]) * trace.sampled
    moments, where = np.unique(times, return_inverse=True)
    return moments.astype(np.float64), np.cumsum(np.bincount(where, weights=change, minlength=moments.size))


def _numbers(fig: Figure, trace: LaunchTrace, left: float) -> None:
    waves, fit = Waves(trace), trace.occupancy
    ax = f.bare(f.axes(fig, left, 52, 226, 370))
    ax.set_xlim(0, 226)
    ax.set_ylim(370, 0)
    y = 8.0
    for term, value, detail in waves.numbers():
        ax.text(0, y, term, size=8, color=f.MUTED, va="center")
        ax.text(0, y + 16, value, size=11, weight="bold", color=f.INK, va="center")
        ax.text(226, y + 16, detail, size=7.5, color=f.MUTED, va="center", ha="right")
        y += 36
    y += 2
    y = limit_bars(ax, y, 18, fit, {})
    ax.text(
        0,
        y + 22,
        f"Theoretical occupancy {percent(fit.fraction)}:\n{occupancy_words(fit)},\n{limiter_words(fit)}",
        size=8,
        color=f.INK,
        va="top",
    )
