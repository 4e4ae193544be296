"""Bars of the blocks per SM that each limit allows, the same in every static picture."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes

from gpulab.views import _figure as f
from gpulab.views._waves import limit_scale
from virtualgpu.records import Occupancy

BAR_LEFT = 94
BAR_WIDTH = 80


def limit_bars(ax: Axes, top: float, row_height: float, fit: Occupancy, colours: Mapping[str, str]) -> float:
    """Draw a row a limit from `top` downwards (axes in pixels); returns where the last row is."""
    ax.text(0, top, "Blocks per SM that each limit allows", size=8, color=f.MUTED, va="center")
    full, y = limit_scale(fit), top
    for limit, blocks in fit.blocks_by_limit.items():
        y += row_height
        counts = limit in fit.limiters
        ax.text(0, y, limit, size=8, color=f.INK, va="center", weight="bold" if counts else "normal")
        length = BAR_WIDTH * min(1.0, blocks / full)
        colour = colours.get(limit, f.VERMILION) if counts else f.RULE
        ax.barh(y, length, 10, left=BAR_LEFT, color=colour, linewidth=0)
        mark = " ◀ limits" if counts else ""
        ax.text(BAR_LEFT + 4 + length, y, f"{blocks}{mark}", size=8, color=f.INK, va="center")
    return y
