"""Items of a plot: the data of each kind, for the painters of the page and of the picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

Numbers = Sequence[float] | npt.NDArray[Any]
Column = npt.NDArray[Any]
MOST_POINTS = 4096


@dataclass(frozen=True, kw_only=True)
class Item:
    """The base class of items.

    Parameters
    ----------
    say
        The sentence of each span, rectangle or node, in pieces (see `gpulab.views.parts`).
    columns
        What the pieces name beside the item's own: arrays and texts.
    """

    kind: ClassVar[str]
    say: Sequence[Any] = ()
    columns: Mapping[str, Any] = field(default_factory=dict)

    def column(self, name: str) -> Any:
        """Return one of `columns`, or an attribute of the item."""
        return self.columns[name] if name in self.columns else getattr(self, name)

    def wire(self) -> dict[str, Any]:
        """Return the item in the browser's format."""
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "columns"}
        if not self.say:
            del own["say"]
        return {"item": self.kind, **own, **self.columns}


@dataclass(frozen=True)
class Spans(Item):
    """Intervals over `rows` rows between `top` and `top + height`, in order of their start `x0`.

    Parameters
    ----------
    row, lane
        Row of each and place in it, from 0; what lies outside is not drawn.
    colour
        Index into `colours` of each; `ground` is what no interval covers.
    joined
        Leave no gap between rows and neighbours.
    busy
        Stretches (``row``, ``x0``, ``x1``) in a ``colour`` of their own under the intervals: what an item
        that holds only some of them leaves out.
    written
        Written into intervals that have room for it, in pieces like ``say``.
    row_names
        With them a click or Enter shows one row alone.
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
    """Very many intervals over rows of their own heights, zoomed to any depth, in order of their start.

    A pixel has the colour of what takes most of it, pale where its row was busy for less than half of it.
    The plot gets a search among ``names`` and a toolbar. It is the first item of its plot.

    Parameters
    ----------
    row, lane
        Row of each and place in it, from 0; the intervals of one place do not overlap.
    colour
        Index into `colours` of each; these are among `palette.PALE`.
    tops, heights, lanes, row_names
        Of each row: pixels from the plot's top, pixels, places side by side in it, and its name.
    columns
        ``name`` (index into ``names``) is searched, its ``shorts`` written where there is room. ``picks``
        (trait -> column) ties traits to what is clicked: those intervals are outlined of which every
        trait that is not -1 equals the column.
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
    """Rectangles, `inset` pixels narrower on the left and right; `colour` is one name or indices into
    `colours`. An `outline` is drawn where it is at least 4 pixels wide; with `hatch` they are filled with
    slanted lines."""

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
class Line(Item):
    """A line through points; `step` makes it a staircase, `fill` colours the area down to y = `base`.

    A staircase of very many points keeps the highest and the last of each of `MOST_POINTS` stretches.
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
        if self.step and xs.size > 2 * MOST_POINTS:
            bounds = np.linspace(0, xs.size, MOST_POINTS, endpoint=False).astype(np.int64)
            highest = np.minimum.reduceat(ys, bounds)  # y grows downwards
            last = np.append(bounds[1:], xs.size) - 1
            xs, ys = (np.column_stack(pair).ravel() for pair in ((xs[bounds], xs[last]), (highest, ys[last])))
        object.__setattr__(self, "x", xs)
        object.__setattr__(self, "y", ys)


@dataclass(frozen=True)
class Rules(Item):
    """Straight segments, dashed or with an arrow's head.

    If `most` is not 0, they are hidden while more than `most` of them are visible.
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
    """Texts, their vertical middle at `y` and their `anchor` (start, middle, end) at `x` plus `dx` pixels.

    Parameters
    ----------
    room
        Data units that each text may take: one that does not fit is left out. A text may have shorter
        forms after a line break, the first that fits is taken.
    spread
        Leave out a text that would touch the last one drawn.
    turn
        Read upwards (a y axis' name).
    pin
        Stay where they are when the plot is zoomed, as the names of rows do.
    of_rows
        They go when one row is shown alone.
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
    spread: bool = False
    turn: bool = False
    mono: bool = False
    pin: bool = False
    of_rows: bool = False


@dataclass(frozen=True)
class Ticks(Item):
    """Ticks below y in several finenesses (step and texts), and a title with its shorter forms."""

    kind = "axis"
    y: float
    levels: Sequence[tuple[float, list[str]]]
    title: Sequence[str]


@dataclass(frozen=True)
class Time(Item):
    """Ticks of a time in nanoseconds below y, whatever is in sight; its zero is at `since`."""

    kind = "time"
    y: float
    since: str = "the start"


@dataclass(frozen=True, kw_only=True)
class Nodes(Item):
    """Nodes of a graph that are walked and picked; `dag` makes them."""

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
