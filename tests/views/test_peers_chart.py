"""Peers chart: links as lines and boxes, groups of GPUs, one GPU alone, and the table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from gpulab.views import PeersChart
from gpulab.views.parts.palette import find_hex
from tests.views import synthetic

RATES = {True: 400.0, False: 40.0}


def chart(gpus: int, direct: Iterable[tuple[int, int]] = (), rates: dict[bool, float] = RATES) -> PeersChart:
    reached = set(direct)
    reach = {(a, b): (a, b) in reached for a in range(gpus) for b in range(gpus)}
    return PeersChart(reach, rates, synthetic.MODELLED, "NVLink")


def links(ax: Any) -> dict[str, list[tuple[float, float]]]:
    """By colour, the GPU and the width of each vertical line."""
    found: dict[str, list[tuple[float, float]]] = {}
    for line in ax.lines:
        found.setdefault(to_hex(line.get_color()), []).append((line.get_xdata()[0], line.get_linewidth()))
    return found


def test_a_link_outside_groups_is_an_arc() -> None:
    ax = chart(3, [(0, 1), (1, 0), (1, 2)]).plot(Figure().subplots())
    arcs = [text for text in ax.texts if getattr(text, "arrow_patch", None) is not None]
    assert {(arc.xyann[0], arc.xy[0]) for arc in arcs} == {(0, 1), (1, 2)}
    assert find_hex("accent") not in links(ax)


def test_a_single_gpu_has_a_note_and_no_table() -> None:
    alone = chart(1)
    assert "one GPU" in repr(alone)
    assert alone.tables() == ()
    assert "no other GPU" in " ".join(alone.notes())


def test_a_machine_without_known_rates_has_no_numbers() -> None:
    measured = chart(2, [(0, 1), (1, 0)], {})
    assert "GB/s" not in measured.describe()
    assert measured.tables()[0].cells[0][2] == "direct"
