"""Boxes and items by themselves: how they are sent and what their picture consists of.

``python -m tests.views.scenes`` writes `FOLDER` anew, and pictures to look at, after a change that is meant.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gpulab.views.parts import boxes, dag, items, picture, plots
from gpulab.views.parts.axes import Axes, Axis, log_axis
from gpulab.views.parts.boxes import Box
from gpulab.views.parts.dag import Shown
from gpulab.views.parts.picture import png
from tests.views.drawn import Strokes, _figures, _plain, _told

FOLDER = Path(__file__).with_name("scenes")
LONG = "a rather long text of several words that has to be broken or cut where there is little room for it"


def block(high: int = 20, colour: str = "accent") -> Box:
    """A plot that is one rectangle, as wide as it may be."""
    return plots.plot(high, (0, 1), plots.boxes([(0, 1, 0, high, 0)], [colour]), left=0, right=0)


def bar(label: str, share: float | None, **more: Any) -> Mapping[str, Any]:
    """A row of bars."""
    return {"label": label, "share": share, "value": f"{share}", **more}


def one(*of: Any, high: float = 60, domain: tuple[float, float] = (0, 100), **more: Any) -> Box:
    """A plot of these items."""
    return plots.plot(high, domain, *of, **more)


def spans(rows: int = 3, height: float = 60, lanes: int = 1, **more: Any) -> items.Spans:
    """Intervals of every length, the last in a row that is not drawn."""
    x0 = np.array([0, 0, 5, 10, 10.1, 40, 90, 50], np.float32)
    x1 = np.array([30, 4, 9, 10.05, 10.2, 90, 120, 60], np.float32)
    row = np.array([0, 1, 1, 1, 1, 2, 0, rows], np.uint16)
    lane = np.arange(8) % lanes if lanes > 1 else None
    colour = np.array([0, 1, 0, 1, 0, 1, 0, 1], np.uint8)
    return items.Spans(
        x0,
        x1,
        row,
        colour,
        ["accent", "tail"],
        rows=rows,
        top=5,
        height=height,
        lane=lane,
        lanes=lanes,
        **more,
    )


def tracks(**more: Any) -> items.Tracks:
    """Intervals in two rows, one of them of two places, some too short to be seen alone."""
    starts = np.array([-10.0, 0, 20, 20.1, 20.2, 50, 50, 99.9])
    ends = np.array([-5.0, 20, 20.1, 20.15, 30, 90, 55, 140])
    given: dict[str, Any] = {
        "x0": starts,
        "x1": ends,
        "row": np.array([0, 0, 0, 0, 0, 1, 1, 0], np.uint16),
        "lane": np.array([0, 0, 0, 0, 0, 0, 1, 0], np.uint8),
        "colour": np.array([0, 1, 0, 1, 0, 0, 1, 1]),
        "colours": ["accent", "warn"],
        "tops": [4.0, 30.0],
        "heights": [20.0, 22.0],
        "lanes": [1, 2],
        "row_names": ["a", "b"],
        "columns": {
            "name": np.array([0, 1, 0, 1, 0, 2, 2, 2]),
            "names": ["kernel", "copy", LONG],
            "shorts": ["kernel", "copy", LONG],
        },
    }
    return items.Tracks(**(given | more))


def said() -> items.Spans:
    """Intervals that have their names written into them, in pieces of every kind."""
    columns = {
        "bytes": [4096, 0, 5],
        "end": [30, 60, 90],
        "begin": [10, 60, 80],
        "which": [1, 0, 1],
        "names": ["no", "yes"],
    }
    pieces = [
        "n ",
        ["which"],
        ", ",
        ["which", "names"],
        ", ",
        ["which", ["a", "b"]],
        " ",
        ["end", "time", "begin"],
        ["bytes", "moved", "end", "begin"],
    ]
    x0 = np.array([0.0, 40, 90])
    x1 = np.array([40.0, 90, 100])
    return items.Spans(
        x0,
        x1,
        np.array([0, 1, 1]),
        np.array([0, 1, 1]),
        ["accent", "warn"],
        rows=2,
        top=0,
        height=60,
        columns=columns,
        written=pieces,
        say=pieces,
    )


def names() -> list[items.Labels]:
    """Labels at each anchor, with little room, one touching the other, in both kinds of letters."""
    anchors = [
        items.Labels([50], [10 * n], [f"at its {anchor}"], anchor=anchor, dx=3)
        for n, anchor in enumerate(("start", "middle", "end"))
    ]
    return [
        *anchors,
        items.Labels([0, 10, 14, 60], [40] * 4, ["first", "touches", "", "last"], spread=True, weight="bold"),
        items.Labels([0, 8, 40], [52, 40, 52], ["below", "between", "free"], spread=True, anchor="end"),
        items.Labels(
            [20, 50, 80],
            [30] * 3,
            ["long text\nshort\ns", "long text\nshort", "none"],
            room=[10, 20, 2],
            anchor="middle",
        ),
        items.Labels([70], [20], ["int x;"], mono=True, size=12, colour="error"),
        items.Labels([5], [30], ["upwards"], turn=True, pin=True),
    ]


def rules() -> list[items.Rules]:
    """Plain, dashed, of no length, with heads in three directions, and more than are drawn."""
    return [
        items.Rules([0, 10], [5, 5], [50, 10], [5, 40], "accent", 2),
        items.Rules([0, 20], [10, 20], [3, 20], [10, 20], dash=True),
        items.Rules([60, 60, 60], [30, 30, 30], [90, 60, 40], [30, 5, 50], arrow=True),
        items.Rules([1, 2], [50, 50], [1, 2], [55, 55], "good", most=2),
        items.Rules([1, 2, 3], [50, 50, 50], [1, 2, 3], [55, 55, 55], "error", most=2),
    ]


def lines() -> list[items.Line]:
    """Straight, as a staircase, filled, without a stroke, of one point and of none."""
    xs = [0, 20, 50, 100]
    ys = [50, 10, 30, 5]
    return [
        items.Line(xs, ys, "accent"),
        items.Line(xs, ys, "tail", 2, step=True),
        items.Line(xs, ys, "good", 1, fill="warn", base=55, step=True),
        items.Line(xs, ys, "error", 0, fill="grid", base=60),
        items.Line([3], [4], "purple"),
        items.Line([], [], "fg"),
    ]


def graph(many: int, **more: Any) -> Box:
    """A chain of so many nodes of every shape, with a branch, a note and one that is picked."""
    shapes = ("box", "copy", "set", "round", "hexagon")
    nodes = {
        f"n{at}": Shown(
            f"node {at}",
            ("accent", "good")[at % 2],
            shapes[at % 5],
            "detail" if at % 3 else "",
            f"says {at}" if at else "",
            (at, at + 100) if at != 4 else (),
            "error" if at == 1 else "",
        )
        for at in range(many)
    }
    edges = [(f"n{at}", f"n{at + 1}") for at in range(many - 1)]
    edges += [("n0", f"n{at}") for at in range(2, many, 3)]
    return dag.dag(nodes, edges, label="a graph", trait="node", marked=["n1", ("n0", "n2")], **more)


def tangle(seed: int, many: int, each: int, back: int) -> Box:
    """Nodes that need so many of those up to so far before them."""
    draw = random.Random(seed)
    edges = {
        (draw.randrange(max(0, n - back), n), n) for n in range(1, many) for _ in range(draw.randint(0, each))
    }
    nodes = {f"{n}": (f"{n}", "accent") for n in range(many)}
    return dag.dag(nodes, [(f"{a}", f"{b}") for a, b in sorted(edges)], label="a tangle")


def chart(across: Axis, up: Axis) -> Box:
    """A chart of three points."""
    axes = Axes(across, up, 80, 12)
    points = axes.points([1, 10, 100], [100, 10, 1], ["a", "b", "c"], [0, 1, 0], ["accent", "tail"])
    return axes.plot(points, left=50, label="a chart")


def chosen(at: int, **more: Any) -> Box:
    """Two rectangles, one of which is outlined."""
    pair = items.Rects(
        [10, 60], [30, 90], [20, 30], [30, 50], "accent", inset=2, **plots.speaking(["a", "b"])
    )
    return one(pair, chosen=at, **more)


def ticks(limit: float, **more: Any) -> Box:
    """An axis with a title of two forms."""
    title = "what the axis shows, said at length\nwhat it shows"
    return one(plots.x_axis(30, limit, str, title, **more), domain=(0, max(limit, 1)))


ROWS = [["name", "1", "an ordinary text"], [LONG, "2,000", LONG], ["x", "", "short"]]
SHAPES = [("in", [("10", 0.25), ("20", None)], False), ("out", [("3", 1.0), ("a longer text", 0.0)], True)]
MATRIX = [{"label": label, "cells": cells, "strong": strong} for label, cells, strong in SHAPES]

ALL: dict[str, Callable[[], Box]] = {
    "column": lambda: boxes.column(
        block(20),
        None,
        boxes.column(gap=3),
        block(12, "tail"),
        boxes.words("hidden", only="page"),
        boxes.column(block(5), block(6)),
        gap=7,
    ),
    "row": lambda: boxes.row(block(20), block(40), block(10), weights=[1, 2, 1], least=[100, 50, 20]),
    "row of its own": lambda: boxes.row(block(20), block(40)),
    "row that wraps": lambda: boxes.row(block(20), block(40), block(10), least=[400, 432, 400], gap=40),
    "row that just fits": lambda: boxes.row(block(20), block(40), least=[432, 400], gap=40),
    "row that wraps above": lambda: boxes.row(
        block(20), block(40), block(10), least=[500, 400, 300], above=True
    ),
    "words": lambda: boxes.column(
        *(boxes.words(f"{style}: {LONG}. {LONG}\n\n{LONG}", style) for style in picture._STYLES), gap=0
    ),
    "legend": lambda: boxes.legend([("accent", LONG), ("tail", "short"), ("good", LONG), ("warn", "a")]),
    "legend of nothing": lambda: boxes.legend([]),
    "numbers": lambda: boxes.numbers(
        [("term", "1.5 GB/s", "a detail"), (LONG, "2", LONG), *[("t", "3", "")] * 5]
    ),
    "numbers in one column": lambda: boxes.numbers([("term", "1", LONG)] * 2, least=900),
    "numbers in two columns": lambda: boxes.numbers([("term", "1", LONG)] * 3, least=428),
    "bars": lambda: boxes.bars(
        [
            bar("half", 0.5),
            bar("strong", 0.25, strong=True),
            bar("none", None),
            bar("more", 1.5, mark="much"),
            bar("less", -0.5, colour="good"),
            bar(LONG, 1.0, title="a title"),
            bar(LONG, 0.1, strong=True, mark="m"),
        ]
    ),
    "bars of nothing": lambda: boxes.bars([], label=0.5),
    "bars without room": lambda: boxes.row(
        boxes.bars([bar("label", 0.5, mark=LONG)], label=0.3), block(), least=[100, 700]
    ),
    "table": lambda: boxes.table(ROWS, ["what", "how many", "why"], "A table"),
    "table without headings": lambda: boxes.table([each[:2] for each in ROWS]),
    "table of one column": lambda: boxes.table([["a"], ["b"]], title="t"),
    "table without room": lambda: boxes.row(boxes.table([[LONG] * 6]), block(), least=[200, 600]),
    "matrix": lambda: boxes.matrix(MATRIX, ["first", LONG]),
    "matrix without room": lambda: boxes.row(
        boxes.matrix(MATRIX, ["first", "second heading"]), block(), least=[90, 700]
    ),
    "switch and fold": lambda: boxes.column(
        boxes.switch("way", 2, {1: block(10), 2: block(30, "good")}),
        boxes.fold("a summary", block(15)),
        boxes.fold("closed", block(15), opened=False, name="f"),
        boxes.slider("n", "n", range(3), ["a", "b", "c"]),
        gap=1,
    ),
    "spans": lambda: one(spans(), left=20, right=30),
    "spans of thin rows": lambda: one(spans(rows=20, height=31)),
    "spans of rows with gaps": lambda: one(spans(rows=8, height=56)),
    "spans of more rows than pixels": lambda: one(spans(rows=150)),
    "spans joined": lambda: one(spans(joined=True), domain=(5, 95)),
    "spans in lanes": lambda: one(spans(lanes=3, ground="panel"), left=0, right=0),
    "spans in lanes joined": lambda: one(spans(lanes=3, joined=True)),
    "spans in more lanes than pixels": lambda: one(spans(rows=40, height=60, lanes=7)),
    "spans over busy stretches": lambda: one(
        spans(
            busy={
                "row": np.array([0, 2]),
                "x0": np.array([-9.0, 10]),
                "x1": np.array([95.0, 30]),
                "colour": "other",
            }
        )
    ),
    "spans of nothing": lambda: one(
        items.Spans(
            *[np.array([], np.float32)] * 2, np.array([], np.uint16), np.array([], np.uint8), [], 2, 0, 20
        )
    ),
    "spans with names": lambda: one(said(), domain=(0, 110)),
    "tracks": lambda: one(tracks(), items.Time(52, "the launch"), high=90, left=60, right=20),
    "tracks from later on": lambda: one(tracks(ground="grid"), items.Time(52), high=90, domain=(10, 60)),
    "tracks of low rows": lambda: one(tracks(heights=[10.9, 21.9])),
    "times far from the start": lambda: one(items.Time(5), domain=(1_234_567_000.0, 1_234_569_000.0)),
    "times of seconds": lambda: one(items.Time(5), domain=(5e9, 9e9)),
    "rectangles": lambda: one(
        items.Rects([0, 10, 50], [5, 10, 80], [0, 5, 10], [10, 15, 40], [0, 1, 0], ["accent", "tail"]),
        items.Rects([20, 96], [40, 98], [0, 0], [9, 9], "good", inset=1),
        items.Rects([0, 50, 60], [40, 50.3, 60.6], [20, 20, 20], [30, 30, 30], "error", outline=True),
        items.Rects([83, 90], [88, 91], [0, 3], [50, 13], "warn", hatch=True),
        left=11,
    ),
    "lines": lambda: one(*lines()),
    "a line of very many points": lambda: one(
        items.Line(np.arange(10_000), np.arange(10_000) * 7 % 50, "accent", step=True), domain=(0, 10_000)
    ),
    "rules": lambda: one(*rules()),
    "labels": lambda: one(*names()),
    "an axis": lambda: ticks(1_000),
    "an axis of whole numbers": lambda: ticks(3, whole=True),
    "an axis that can be zoomed": lambda: ticks(700, zoom=True),
    "an axis in other units": lambda: ticks(5_000, scale=1_000),
    "an axis of nothing": lambda: ticks(0),
    "an axis without room": lambda: boxes.row(ticks(100), block(), least=[90, 762]),
    "chosen on the left": lambda: chosen(0, marks=["first", "second"], mark_y=8, trait="t", values=[3, 4]),
    "chosen on the right": lambda: chosen(1, marks=["first", "second"]),
    "chosen without marks": lambda: chosen(1, hint="point at it", most_zoom=3.0),
    "lanes": lambda: one(
        plots.lane_grid(
            np.array([[0, 0, 1, 1], [1, 1, 1, 1], [0, 1, 0, 1]]), ["accent", "tail"], top=3, row_height=8
        ),
        domain=(0, 4),
    ),
    "graph of one": lambda: graph(1),
    "graph of six": lambda: graph(6),
    "graph of long names": lambda: dag.dag(
        {shape: Shown(LONG, shape=shape, detail=LONG) for shape in dag.SHAPES}, [], label="long names"
    ),
    "graph of two bands": lambda: graph(17),
    "graph of crossings": lambda: tangle(3, 30, 3, 12),
    "graph of more crossings": lambda: tangle(4, 40, 2, 40),
    "graph of long edges": lambda: tangle(5, 24, 4, 6),
    "graph of very many": lambda: tangle(6, 210, 2, 60),
    "graph that is low": lambda: graph(9, most_px=90),
    "graph of nothing": lambda: dag.dag({}, [], label="none"),
    "chart": lambda: chart(log_axis(1, 100, "across"), log_axis(1, 100, "up", (1,))),
    "chart of plain axes": lambda: chart(
        Axis(0, 100, {0: "none", 50: "half", 100: "all"}, "across"), Axis(0, 100, {0: "0", 100: "1"}, "up")
    ),
    "chart by twos": lambda: chart(
        Axis(1, 128, {2: "2", 64: "64"}, "across", 2, grid=True), Axis(1, 128, base=2)
    ),
}


def told(scene: Box) -> list[str]:
    """What the page gets, and what the picture consists of, stroke by stroke."""
    height, paint = picture.lay(scene, picture.WIDTH_PX - 2 * picture.MARGIN_PX)
    pen = Strokes()
    paint(pen, 3, 5)
    strokes = [f"{kind}: {_figures(np.array(at))}" for kind, at in sorted(pen.noted.items())]
    return [
        line.rstrip() for line in (*_told("scene", scene, 0), f"picture: {_plain(height)} high", *strokes)
    ]


def kept(name: str) -> Path:
    """Where the lines of a scene are."""
    return FOLDER / f"{name.replace(' ', '_')}.txt"


def main() -> None:
    pictures = Path(tempfile.mkdtemp(prefix="gpulab-scenes-"))
    FOLDER.mkdir(exist_ok=True)
    for name, make in ALL.items():
        kept(name).write_text("\n".join(told(make())) + "\n", encoding="utf-8")
        (pictures / f"{name}.png").write_bytes(png(make(), name, "a scene"))
    print(f"{len(ALL)} scenes; look at their pictures in {pictures}")


if __name__ == "__main__":
    sys.exit(main())
