"""The paths of copies between host and device, with the paths that a timeline uses highlighted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import traitlets

from gpulab import session
from gpulab.lab.timeline import TimelineReport
from gpulab.views._base import View
from gpulab.views.parts.boxes import Box, column, switch, words
from gpulab.views.parts.items import Item, Labels, Rects, Rules
from gpulab.views.parts.plots import plot, speaking
from gpulab.words import duration, number, size
from virtualgpu.records import Activity, HostCall, Provenance

Way = Literal["pageable", "pinned", "zero-copy", "managed", "prefetch", "at home", "peer"]
_KERNEL = "CONCURRENT_KERNEL"
_HOST_MEMORY = 1
_MANAGED_MEMORY = 3
_BUS_GBPS = 64.0  # what PCIe 5.0 x16 carries in one direction: faster than that is not over it
_COPY_CALL_US = 50  # a call that takes longer than this has waited


@dataclass(frozen=True, slots=True)
class Move:
    """A transfer of bytes: its path, size and time, and what the host did.

    ``text`` is the line of the program, ``call_ns`` what its call took; 0: not known. ``copied``: by a copy,
    not by a kernel that reads.
    """

    way: Way
    to_host: bool
    size_bytes: int
    time_ns: int
    text: str = ""
    call_ns: int = 0
    copied: bool = False

    @property
    def by_kernel(self) -> bool:
        """Return whether a kernel read these bytes; it may have written as many; a copy moves them once."""
        return self.way in ("zero-copy", "managed", "at home") and not self.copied

    @property
    def gbps(self) -> float:
        return self.size_bytes / max(self.time_ns, 1)

    @property
    def host_waited(self) -> bool:
        """Return whether the call took about as long as the copy."""
        return self.call_ns > max(self.time_ns / 2, _COPY_CALL_US * 1e3)


class Place:
    """A box on the map."""

    def __init__(self, text: str, x: float, y: float, wide: float = 17, high: float = 36) -> None:
        self.text = text
        self.x = x
        self.y = y
        self.wide = wide
        self.high = high

    @property
    def right(self) -> float:
        return self.x + self.wide

    @property
    def middle(self) -> float:
        return self.y + self.high / 2


_PLACES = {
    "pageable": Place("pageable memory", 2, 34),
    "staging": Place("driver's buffer", 27, 34),
    "pinned": Place("pinned memory", 2, 84),
    "managed": Place("managed pages", 2, 134),
    "engine": Place("copy engine", 60, 59, 15),
    "sms": Place("SMs", 60, 134, 15),
    "memory": Place("device memory", 83, 94, 15),
    "peer": Place("another GPU", 83, 34, 15),
}
# Each way: the arrows it takes, from place to place towards the device.
_ARROWS: dict[Way, tuple[tuple[str, str], ...]] = {
    "pageable": (("pageable", "staging"), ("staging", "engine"), ("engine", "memory")),
    "pinned": (("pinned", "engine"), ("engine", "memory")),
    "zero-copy": (("pinned", "sms"),),
    "managed": (("managed", "engine"), ("engine", "memory"), ("memory", "sms")),
    "prefetch": (("managed", "engine"), ("engine", "memory")),
    "at home": (("memory", "sms"),),
    "peer": (("memory", "engine"), ("engine", "peer")),
}
_HOW: dict[Way, str] = {
    "pageable": "A core of the CPU copies it piece by piece into a pinned buffer of the driver; the copy "
    "engine fetches each piece from there.",
    "pinned": "The copy engine fetches it by itself, at the rate of the bus; no core of the CPU takes part.",
    "zero-copy": "No copy: the kernel's own loads and stores cross the bus, every time.",
    "managed": "Each page that the kernel misses is a fault: the driver moves it, and the kernel waits.",
    "prefetch": "The driver moves the pages beforehand, in large pieces and without faults.",
    "at home": "All of it was in the device's own memory; nothing crossed the bus.",
    "peer": "From the memory of one GPU to that of another, without the host.",
}


class WhereCopiesGo(View):
    """The map, with one way lit up, and below it how fast each went."""

    chosen = traitlets.Int().tag(sync=True, echo_update=False)

    def __init__(self, moves: Sequence[Move], provenance: Provenance) -> None:
        if not moves:
            raise ValueError("Nothing was copied within this timeline; put copies into its block.")
        self.moves = tuple(moves)
        self.provenance = provenance
        super().__init__(
            title="Where does the copy go?",
            caption=f"Times and rates {provenance.label}. A rate is what was copied, or what a kernel read: "
            "what it wrote comes on top. The map is a sketch.",
            source=provenance.source,
            chosen=0,
        )
        self.redraw()

    @property
    def record(self) -> tuple[Move, ...]:
        return self.moves

    def sentence(self) -> str:
        rates = "; ".join(f"{_name(move)} {_rate(move)}" for move in self.moves)
        return f"Where copies go: {rates}; {self.provenance.label}."

    def describe(self) -> str:
        return "\n".join([self.sentence(), *(f"{_says(move)} {_HOW[move.way]}" for move in self.moves)])

    def draw(self) -> Box:
        cases = {
            at: column(_map(move), words(_says(move), "strong"), words(_HOW[move.way], "note"))
            for at, move in enumerate(self.moves)
        }
        return column(
            switch("chosen", self.chosen, cases),
            self._rates(),
            words("Click a bar, or focus the chart and use the arrow keys.", "note", only="page"),
        )

    def _rates(self) -> Box:
        moves = self.moves
        count = len(self.moves)
        top = 34
        high = 76
        here = [*range(count)]
        bottom = top + high
        # Transfers within the device are so much faster that their bar is cut.
        most = max([move.gbps for move in moves if move.way != "at home"] or [move.gbps for move in moves])
        shares = [min(max(move.gbps / most, 0.01), 1.25) / 1.25 for move in moves]
        tops = [bottom - high * share for share in shares]
        middle = [at + 0.5 for at in here]
        rates = [f"{_rate(move)}{' (cut)' if move.gbps > 1.25 * most else ''}" for move in moves]
        names = [_name(move) for move in moves]
        sizes = [size(move.size_bytes) for move in moves]
        room = [1.0] * count
        colour = [int(move.way == "at home") for move in moves]
        return plot(
            bottom + 36,
            (0.0, float(max(count, 4))),
            Rects(
                here,
                [at + 1 for at in here],
                tops,
                [bottom] * count,
                colour,
                ("accent", "other"),
                inset=14,
                **speaking([_says(move) for move in moves]),
            ),
            Labels(middle, [y - 9 for y in tops], rates, anchor="middle", weight="bold"),
            Labels(middle, [bottom + 12] * count, names, anchor="middle", room=room),
            Labels(middle, [bottom + 27] * count, sizes, anchor="middle", colour="muted", room=room),
            label="Rate of each",
            trait="chosen",
            values=here,
            marks=[""] * count,
            mark_y=8,
            chosen=self.chosen,
        )


def _map(move: Move) -> Box:
    arrows = _ARROWS[move.way]
    lit = {name for pair in arrows for name in pair}
    dark = dict.fromkeys(
        pair for way in _ARROWS.values() for pair in way if not {pair, pair[::-1]} & {*arrows}
    )
    on = [place for name, place in _PLACES.items() if name in lit]
    off = [place for name, place in _PLACES.items() if name not in lit]
    way = " to ".join(dict.fromkeys(_PLACES[name].text for pair in arrows for name in pair))
    return plot(
        184,
        (0.0, 100.0),
        Rects([0, 55], [46, 100], [4, 4], [180, 180], "panel"),
        Labels([1, 56], [17, 17], ["host", "device"], colour="muted"),
        Labels([50.5], [17], ["PCIe"], anchor="middle", colour="muted"),
        Rules([50.5], [28], [50.5], [178], "other", dash=True),
        _arrows([*dark], False, "other", 1),
        _boxes(off, "grid"),
        _arrows(arrows, move.to_host, "tail", 3),
        _boxes(on, "accent"),
        _words(off, "fg", "normal"),
        _words(on, "on-accent", "bold"),
        label=f"{_name(move)}: {way}",
    )


def _boxes(places: Sequence[Place], colour: str) -> Item:
    low = [p.x for p in places]
    high = [p.right for p in places]
    return Rects(low, high, [p.y for p in places], [p.y + p.high for p in places], colour)


def _words(places: Sequence[Place], colour: str, weight: str) -> Item:
    middle = [p.x + p.wide / 2 for p in places]
    texts = [p.text for p in places]
    return Labels(middle, [p.middle for p in places], texts, anchor="middle", colour=colour, weight=weight)


def _arrows(pairs: Sequence[tuple[str, str]], back: bool, colour: str, width: float) -> Item:
    ends = [_edges(_PLACES[a], _PLACES[b]) for a, b in pairs]
    if back:
        ends = [(x1, y1, x0, y0) for x0, y0, x1, y1 in ends]
    x0, y0, x1, y1 = ([end[at] for end in ends] for at in range(4))
    return Rules(x0, y0, x1, y1, colour, width=width, arrow=True)


def _edges(a: Place, b: Place) -> tuple[float, float, float, float]:
    """Return the end points of a line from the side of a box to the facing side of another."""
    if a.right <= b.x:
        return a.right, a.middle, b.x, b.middle
    return a.x, a.middle, b.right, b.middle


def _name(move: Move) -> str:
    if move.way in ("zero-copy", "managed", "at home"):
        return move.way
    if move.way == "peer":
        return "GPU to GPU"
    return f"{move.way} to {'host' if move.to_host else 'device'}"


def _rate(move: Move) -> str:
    return f"{number(move.gbps)} GB/s{' read' if move.by_kernel else ''}"


def _says(move: Move) -> str:
    text = f"{move.text}: " if move.text else ""
    waited = ""
    if move.call_ns and move.way in ("pageable", "pinned"):
        waited = (
            " The host stood still until it was done." if move.host_waited else " The host went on at once."
        )
    took = f"{size(move.size_bytes)} in {duration(move.time_ns)}, {_rate(move)}"
    return f"{text}{_name(move)}, {took}.{waited}"


def where(timeline: TimelineReport, reads: Sequence[Any] = ()) -> WhereCopiesGo:
    """The ways that the copies of a timeline took, and the kernels that read memory elsewhere.

    Parameters
    ----------
    timeline
        What ``gl.timeline()`` recorded.
    reads
        For each kernel in it, in order, the array that it reads; kernels beyond these are left out.
    """
    record = timeline.record
    calls = {call.correlation_id: call for call in record.calls if call.correlation_id}
    arrays = iter(reads)
    moves = []
    for activity in sorted(record.activities, key=lambda each: each.correlation_id):
        call = calls.get(activity.correlation_id)
        if activity.kind == _KERNEL:
            array = next(arrays, None)
            if array is not None:
                moves.append(_of_kernel(activity, call, array))
        elif activity.copy_kind is not None:
            moves.append(_of_copy(activity, call))
    return WhereCopiesGo(moves, record.provenance)


def _of_copy(activity: Activity, call: HostCall | None) -> Move:
    ways: dict[Any, Way] = {"DtoD": "at home", "PtoP": "peer"}
    way: Way = ways.get(activity.copy_kind) or ("pinned" if activity.pinned else "pageable")
    if activity.name.startswith("Memprefetch"):
        way = "prefetch"
    return _move(way, activity, call, activity.size_bytes)


def _of_kernel(activity: Activity, call: HostCall | None, array: Any) -> Move:
    kind = session.cp().cuda.runtime.pointerGetAttributes(array.data.ptr).type
    ways: dict[int, Way] = {_HOST_MEMORY: "zero-copy", _MANAGED_MEMORY: "managed"}
    way = ways.get(kind, "at home")
    if array.nbytes / max(activity.duration_ns, 1) > _BUS_GBPS:
        way = "at home"  # no bus carries that: the pages were there
    return _move(way, activity, call, int(array.nbytes))


def _move(way: Way, activity: Activity, call: HostCall | None, size_bytes: int) -> Move:
    text = call.source.text.strip() if call is not None and call.source is not None else ""
    took = call.end_ns - call.start_ns if call is not None else 0
    return Move(
        way,
        activity.copy_kind == "DtoH",
        size_bytes,
        activity.duration_ns,
        text[:60],
        took,
        copied=activity.kind != _KERNEL,
    )
