"""Static picture of a warp trace: source lines beside lanes over steps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from gpulab.views import _figure as f
from gpulab.views._text import number
from gpulab.views._warp_steps import SECTOR_BYTES, WarpSteps, lane_bits
from virtualgpu.records import WARP_SIZE

MOST_LINES = 26
MOST_COLUMNS = 1200
MOST_LOOPS = 200
LINE_PX = 15.5


def draw(steps: WarpSteps, caption: str, confirmation: str) -> Figure:
    trace = steps.trace
    first, texts = _window(steps)
    body = max(230.0, len(texts) * LINE_PX)
    height = int(body + 146)
    block = ", ".join(str(i) for i in trace.block_index)
    title = (
        f"Warp {trace.warp_index} of block ({block}) in {trace.kernel_name}: which lanes run, step by step"
    )
    fig = f.figure(height, title, f.wrapped(f"{confirmation} {caption}".strip()))
    if not len(steps):
        fig.text(0.5, 0.5, "The warp ran no instruction.", ha="center", color=f.INK)
        return fig
    _source(fig, steps, first, texts, body)
    _lanes(fig, steps, body)
    return fig


def _window(steps: WarpSteps) -> tuple[int, list[str]]:
    """The lines that ran, at most `MOST_LINES`; returns the first line's number and the texts."""
    code = [line.expandtabs(4) for line in steps.trace.code.splitlines()]
    run = steps.line[steps.line > 0]
    if not run.size or not code:
        return 1, code[:MOST_LINES]
    first = max(1, int(run.min()) - 1)
    last = min(len(code), int(run.max()) + 1, first + MOST_LINES - 1)
    return first, code[first - 1 : last]


def _source(fig: Figure, steps: WarpSteps, first: int, texts: list[str], body: float) -> None:
    ax = f.bare(f.axes(fig, 14, 62, 420, body))
    ax.set_xlim(0, 420)
    ax.set_ylim(body, 0)
    ax.text(0, -8, "line", size=8, color=f.MUTED)
    ax.text(66, -8, "steps", size=8, color=f.MUTED, ha="right")
    ax.text(80, -8, "mean active lanes (bar) and source", size=8, color=f.MUTED)
    lanes = lane_bits(steps.trace.active_mask).sum(axis=1)
    for at, text in enumerate(texts):
        line, y = first + at, at * LINE_PX
        here = steps.line == line
        visits = int(np.count_nonzero(here))
        ax.text(22, y + 11, str(line), size=8, color=f.MUTED, ha="right")
        if visits:
            share = float(lanes[here].mean()) / WARP_SIZE
            ax.text(66, y + 11, f"{number(visits)}×", size=8, color=f.INK, ha="right")
            ax.barh(y + LINE_PX / 2, 332 * share, LINE_PX - 2, left=78, color=f.SKY, alpha=0.35, linewidth=0)
        shown = text if len(text) <= 50 else text[:49] + "…"
        ax.text(
            80, y + 11, shown, size=7.6, family=f.MONO, color=f.INK if visits else f.MUTED, parse_math=False
        )


def _lanes(fig: Figure, steps: WarpSteps, body: float) -> None:
    trace, total = steps.trace, len(steps)
    left, width = 478, 404
    state = lane_bits(trace.active_mask).astype(np.float64)
    active = state.sum(axis=1)
    ran = lane_bits(trace.executed_mask & trace.active_mask)
    image = _colours(state > 0, ran)
    raster_height = body - 98
    ax = f.axes(fig, left, 62, width, raster_height)
    extent = (0.5, total + 0.5, WARP_SIZE - 0.5, -0.5)
    ax.imshow(
        image,
        extent=extent,
        aspect="auto",
        interpolation="nearest" if total <= MOST_COLUMNS else "antialiased",
    )
    ax.set_yticks([0, 8, 16, 24, 31])
    ax.set_ylabel("lane", size=8, color=f.INK, labelpad=2)
    ax.tick_params(labelbottom=False)
    below = f.axes(fig, left, 62 + raster_height + 10, width, 56, sharex=ax)
    edges = np.arange(1, total + 1)
    below.fill_between(edges, active, step="mid", color=f.SKY, alpha=0.6, linewidth=0)
    below.step(edges, active, where="mid", color=f.BLUE, linewidth=1)
    below.set_ylim(0, 34)
    below.set_yticks([0, 16, 32])
    below.set_ylabel("active", size=8, color=f.INK, labelpad=2)
    below.set_xlabel("step", size=8, color=f.INK, labelpad=1)
    fig.text(
        left / f.WIDTH_PX,
        1 - (62 + raster_height + 104) / (fig.get_figheight() * f.DPI),
        _access_summary(steps),
        size=8,
        color=f.INK,
        va="top",
    )
    _loops(ax, steps)
    if steps.accesses.size:
        at = steps.accesses + 1
        below.plot(at, np.full(at.size, -4.0), "|", color=f.VERMILION, markersize=4, clip_on=False)
    below.set_xlim(0.5, total + 0.5)
    patches = [
        Patch(facecolor=f.BLUE, label="active"),
        Patch(facecolor=f.ORANGE, label="predicated off"),
        Patch(facecolor=f.FAINT, label="inactive"),
    ]
    fig.legend(
        handles=patches,
        loc="upper right",
        bbox_to_anchor=((left + width) / f.WIDTH_PX + 0.006, 1 - 36 / (fig.get_figheight() * f.DPI)),
        ncols=3,
        fontsize=8,
        frameon=False,
        borderaxespad=0,
        handlelength=1,
        handleheight=1,
        columnspacing=1.2,
    )


def _loops(ax: Axes, steps: WarpSteps) -> None:
    """Outer loops as bars below the lanes, with their turns where there is room."""
    loops = steps.loops
    for run in np.flatnonzero(loops.parent < 0).tolist()[:MOST_LOOPS]:
        left, right = int(loops.first[run]) + 0.5, int(loops.last[run]) + 1.5
        ax.fill_between([left, right], 32.2, 33.6, color=f.SKY, linewidth=0, clip_on=False)
        if right - left > len(steps) / 8:
            words = f"{loops.turns(run).size}{'+' if loops.open[run] else ''} iterations"
            ax.text((left + right) / 2, 33.0, words, size=6.5, color=f.INK, ha="center", va="center")
    ax.set_ylim(WARP_SIZE - 0.5, -0.5)


def _colours(active: npt.NDArray[np.bool_], ran: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    image = np.empty((WARP_SIZE, active.shape[0], 3))
    image[:] = to_rgb(f.FAINT)
    image[active.T] = to_rgb(f.ORANGE)
    image[ran.T] = to_rgb(f.BLUE)
    return image


def _access_summary(steps: WarpSteps) -> str:
    if not steps.accesses.size or steps.trace.access_space is None:
        return "no memory access"
    spaces = np.array(steps.trace.space)[steps.trace.access_space[steps.accesses]]
    wide = np.isin(spaces, ("global", "generic"))
    words = []
    if wide.any():
        spent, ideal = int(steps.sectors[wide].sum()), int(steps.ideal_sectors[wide].sum())
        words.append(f"{number(spent)} sectors of {SECTOR_BYTES} B, at best {number(ideal)}")
    shared = spaces == "shared"
    if shared.any() and steps.wavefronts[shared].sum():
        spent, ideal = int(steps.wavefronts[shared].sum()), int(steps.ideal_wavefronts[shared].sum())
        words.append(f"{number(spent)} shared passes, at best {number(ideal)}")
    found = steps.accesses.size
    marks = "1 memory access" if found == 1 else f"{number(found)} memory accesses"
    return f"orange marks: {marks}\n{'; '.join(words)}"
