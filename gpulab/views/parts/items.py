"""Items of a plot: dataclasses with the data that the page and the static picture draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

Numbers = Sequence[float] | npt.NDArray[Any]
Column = npt.NDArray[Any]
MAX_LINE_POINTS = 4096


@dataclass(frozen=True, kw_only=True)
class Item:
    """The base class of the items in a plot.

    Parameters
    ----------
    say
        The sentence of each span, rectangle or node, in pieces (see `gpulab.views.parts`).
    columns
        Arrays and texts for these pieces, in addition to the item's own fields.
    """

    kind: ClassVar[str]
    say: Sequence[Any] = ()
    columns: Mapping[str, Any] = field(default_factory=dict)

    def column(self, name: str) -> Any:
        """Return the column with the given name, which is an element of `columns` or a field of the item."""
        return self.columns[name] if name in self.columns else getattr(self, name)

    def wire(self) -> dict[str, Any]:
        """Return the plot item as a dictionary for the JavaScript code in the browser."""
        wire_values = {
            item_field.name: getattr(self, item_field.name)
            for item_field in fields(self)
            if item_field.name != "columns"
        }
        if not self.say:
            del wire_values["say"]
        return {"item": self.kind, **wire_values, **self.columns}


@dataclass(frozen=True)
class Spans(Item):
    """A plot item that shows intervals on `rows` rows of equal height. The intervals are sorted by their
    start `x0`.

    If a row has fewer pixels than lanes, its colour shows the share of the lanes in use.

    Parameters
    ----------
    row, lane
        Row of each interval, and lane within the row, from 0. Intervals in other rows are not drawn.
    top, height
        Pixels from the plot's top to the first row, and the height of all rows.
    colour
        Index into `colours` of each interval; `ground` is the colour of the background.
    joined
        Whether there is no gap between rows and between neighbours.
    busy
        Intervals (``row``, ``x0``, ``x1``) in one ``colour`` below the others, for an item that contains only
        a sample of its intervals.
    written
        Text inside intervals that have enough space for it, in pieces like ``say``.
    row_names
        Names of the rows. If there are any, a click or Enter shows one row alone.
    """

    kind = "spans"
    x0: Column
    x1: Column
    row: Column
    colour: Column
    colours: Sequence[str]
    rows: int
    top: float
    height: float
    lane: Column | None = None
    lanes: int = 1
    ground: str = "grid"
    joined: bool = False
    busy: Mapping[str, Any] | None = None
    written: Sequence[Any] = ()
    row_names: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Tracks(Item):
    """Intervals on rows of individual heights, sorted by their start. The item supports any number of
    intervals and any magnification.

    A pixel has the colour that covers most of it; the colour is pale if the row was busy for less than half
    of the pixel. The plot gets a toolbar and a search among ``names``. Tracks are the first item of their
    plot.

    Parameters
    ----------
    row, lane
        Row of each interval, and lane within the row, from 0; the intervals of one lane do not overlap.
    colour
        Index into `colours` of each interval; the colours are among `palette.PALE_COLOURS`.
    tops, heights, lanes, row_names
        Of each row: pixels from the plot's top, height in pixels, number of lanes, and name.
    columns
        ``name`` (index into ``names``) is searched; its ``shorts`` are written where there is enough space.
        ``picks`` (trait -> column) connects traits to clicks: an interval is outlined if every trait that is
        not -1 equals its column.
    """

    kind = "tracks"
    x0: Column
    x1: Column
    row: Column
    lane: Column
    colour: Column
    colours: Sequence[str]
    tops: Sequence[float]
    heights: Sequence[float]
    lanes: Sequence[int]
    row_names: Sequence[str]
    ground: str = "panel"


@dataclass(frozen=True)
class Rects(Item):
    """Rectangles whose colour is one name, or an index into `colours` for each rectangle.

    Each rectangle is drawn `inset` pixels narrower on the left and on the right side. With `outline`, only
    outlines of rectangles that are at least 4 pixels wide are drawn; with `hatch`, the rectangles are filled
    with slanted lines.
    """

    kind = "rects"
    x0: Numbers
    x1: Numbers
    y0: Numbers
    y1: Numbers
    colour: Any
    colours: Sequence[str] = ()
    inset: float = 0
    outline: bool = False
    hatch: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.colour, str):
            object.__setattr__(self, "colours", [self.colour])
            object.__setattr__(self, "colour", [0] * len(self.x0))


@dataclass(frozen=True)
class ReadingMarks(Item):
    """Readings over time. A line marks the time of the selected reading, and its values are written next to
    the line.

    Parameters
    ----------
    x0, x1
        The interval of each reading.
    y0, y1
        The ends of the line in pixels, for each reading.
    values
        Heights in pixels, and for each the index and the texts of the values, as names of `columns`.
    """

    kind = "readings"
    x0: Numbers
    x1: Numbers
    y0: Numbers
    y1: Numbers
    values: Sequence[tuple[float, str, str]]


@dataclass(frozen=True)
class Polyline(Item):
    """A line that connects the given points in a plot. If `step` is true, the line is a step function. With
    `fill`, the area between the line and y = `base` is coloured.

    A staircase with very many points is divided into `MAX_LINE_POINTS` intervals, and the highest and the
    last point of each are kept.
    """

    kind = "line"
    x: Numbers
    y: Numbers
    colour: str
    width: float = 1
    fill: str = ""
    base: float = 0
    step: bool = False

    def __post_init__(self) -> None:
        xs = np.asarray(self.x, np.float64)
        ys = np.asarray(self.y, np.float32)
        if self.step and xs.size > 2 * MAX_LINE_POINTS:
            interval_starts = np.linspace(0, xs.size, MAX_LINE_POINTS, endpoint=False).astype(np.int64)
            peak_values = np.minimum.reduceat(ys, interval_starts)  # y grows downwards
            last_indices = np.append(interval_starts[1:], xs.size) - 1
            xs, ys = (
                np.column_stack(columns).ravel()
                for columns in ((xs[interval_starts], xs[last_indices]), (peak_values, ys[last_indices]))
            )
        object.__setattr__(self, "x", xs)
        object.__setattr__(self, "y", ys)


@dataclass(frozen=True)
class LineSegments(Item):
    """Straight line segments, which can be dashed or have arrow heads.

    If more than `most` segments are visible, all segments are hidden, unless `most` is 0.
    """

    kind = "rules"
    x0: Numbers
    y0: Numbers
    x1: Numbers
    y1: Numbers
    colour: str = "muted"
    width: float = 1
    dash: bool = False
    arrow: bool = False
    most: int = 0


@dataclass(frozen=True)
class Labels(Item):
    """A plot item with texts that are vertically centred at `y`. A text starts, ends or is centred `dx`
    pixels to the right of `x`, depending on `anchor`.

    Parameters
    ----------
    room
        Largest width of each text in data units; a text that does not fit is left out. A text may have
        shorter forms after line breaks; the first that fits is used.
    lines
        Largest number of lines below each other into which a form is broken at its spaces to fit.
    spread
        Leave out a text that would touch the previous one.
    turn
        Write upwards, as for the name of a y axis.
    pin
        Keep the position when the plot is zoomed, as for the names of rows.
    of_rows
        Hide the texts when one row is shown alone.
    """

    kind = "labels"
    x: Numbers
    y: Numbers
    text: Sequence[str]
    anchor: str = "start"
    colour: str = "fg"
    size: float = 11
    weight: str = "normal"
    dx: float = 0
    room: Numbers | None = None
    lines: int = 1
    spread: bool = False
    turn: bool = False
    mono: bool = False
    pin: bool = False
    of_rows: bool = False


@dataclass(frozen=True)
class TickAxis(Item):
    """A horizontal axis below ``y``, with ticks at one of several distances. The painter selects a distance
    at which the ticks fit.
    """

    kind = "axis"
    y: float
    levels: Sequence[tuple[float, list[str]]]
    title: Sequence[str]


@dataclass(frozen=True)
class TimeAxis(Item):
    """A time axis in nanoseconds below ``y``, whose ticks depend on the zoom. The attribute `since` is the
    name of the event at time zero.
    """

    kind = "time"
    y: float
    since: str = "the start"


@dataclass(frozen=True, kw_only=True)
class Nodes(Item):
    """The nodes of a graph, which can be selected with the pointer or the keyboard. The function `draw_dag`
    creates them.
    """

    kind = "nodes"
    x0: Column
    x1: Column
    y0: Column
    y1: Column
    colour: Sequence[int]
    colours: Sequence[str]
    mark: Sequence[int]
    shape: Sequence[int]
    text: Sequence[str]
    detail: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Ring(Item):
    """A plot item that shows devices on a circle and the data that moves between them. The positions of the
    devices do not depend on the domain of the plot.

    Parameters
    ----------
    names
        Name of each device, clockwise from the top; shorter forms follow after line breaks.
    links
        Pairs of devices that are joined by a line.
    source, target, text, colour
        Of each move: its devices, the text on its mark, and an index into `colours`.
    step
        Number of the step; if the page shows the next step, the marks travel along their arrows.
    """

    kind = "ring"
    names: Sequence[str]
    links: Sequence[tuple[int, int]]
    source: Sequence[int]
    target: Sequence[int]
    text: Sequence[str]
    colour: Sequence[int]
    colours: Sequence[str]
    step: int
