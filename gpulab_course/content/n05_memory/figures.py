"""Figures of notebook 05: the bytes that the steps of a program move, compared with those that they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from gpulab.views.parts.palette import light
from gpulab_course.teach.picture import Picture
from virtualgpu.records import Provenance


def least_bytes(args: Sequence[Any]) -> int:
    """Return the bytes of all arrays among a launch's arguments: the least that the launch has to move."""
    arrays = {id(argument): int(argument.nbytes) for argument in args if len(getattr(argument, "shape", ()))}
    return sum(arrays.values())


def traffic(moved_bytes: Mapping[str, int], needed_bytes: Mapping[str, int], origin: Provenance) -> Picture:
    """Draw the bytes that each step moves above the bytes that it needs.

    Parameters
    ----------
    moved_bytes, needed_bytes
        The bytes of each step by its name.
    origin
        The provenance of `moved_bytes`.
    """
    names = list(moved_bytes)
    figure = Figure(figsize=(7.6, 0.7 + 0.52 * len(names)), dpi=100)
    axes = figure.add_axes((0.23, 0.2, 0.66, 0.68))
    rows = range(len(names))
    axes.barh(
        [row - 0.19 for row in rows],
        [moved_bytes[name] for name in names],
        0.36,
        color=light("warn"),
        label="requested",
    )
    axes.barh(
        [row + 0.19 for row in rows],
        [needed_bytes[name] for name in names],
        0.36,
        color=light("good"),
        label="needed",
    )
    for row, name in enumerate(names):
        axes.annotate(
            f"{moved_bytes[name] / needed_bytes[name]:,.0f} ×",
            (moved_bytes[name], row - 0.19),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    axes.set_xscale("log")
    axes.set_yticks(list(rows), names)
    axes.invert_yaxis()
    axes.set_xlabel("bytes")
    axes.legend(frameon=False, loc="lower right", fontsize=9)
    axes.set_title(origin.label, fontsize=10, color=light("muted"))
    axes.spines[["top", "right"]].set_visible(False)
    ratios = ", ".join(f"{name} {moved_bytes[name] / needed_bytes[name]:,.0f} times" for name in names)
    return Picture.of(figure, f"Bytes requested per step, {origin.label}: {ratios} what it needs.")
