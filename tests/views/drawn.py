"""What views hold, in lines of text: sentence, description and display list, arrays by a few figures each.

``python -m tests.views.drawn`` writes `FOLDER` anew. Do that after a change that is meant, when you have
looked at the pictures, which it puts into the folder that it names.
"""

from __future__ import annotations

import hashlib
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from gpulab.views import (
    AccessMicroscope,
    AllocatorView,
    GraphView,
    LaunchChart,
    LoadChart,
    TimelineView,
    WarpStepper,
)
from gpulab.views.allocator.maps import Maps
from gpulab.views.parts import picture
from gpulab.views.parts.boxes import Box
from gpulab.views.parts.items import Item
from gpulab.views.parts.pack import pack
from gpulab.views.parts.pen import Pen
from tests.allocators.traces import trace_of
from tests.views import exchanges, graphs, pools, synthetic, timelines, unusual, warps
from tests.views.makers import MAKERS
from virtualgpu.records import DanglingArray, GraphArray
from virtualgpu.records.access import AccessPattern

FOLDER = Path(__file__).with_name("drawn")
_NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]\d+)?|-?\d+(?:e[-+]\d+)?")
# characters of a line, elements that stand in one
_LONG = 100
_MANY = 12
_ROWS = 40  # of an image, that stand in lines of their own
_BESIDE = {"controls", "scene", "data", "contents"}
_OTHERS = {"layout", "tabbable", "tooltip"}
_NUMBERS = (int, float, np.number)


def _allocator(colour_by: str) -> AllocatorView:
    view = pools.two(300, 5)
    view.step //= 2
    return _coloured(view, colour_by)


def _coloured(view: AllocatorView, colour_by: str) -> AllocatorView:
    view.colour_by = colour_by
    return view


def _folded() -> GraphView:
    """Steps that come again, a library's kernel, and one that uses what was freed."""
    names = [*["norm", "matmul", "softmax"] * 20, graphs.CUB, "gelu"]
    nodes = [graphs.kernel(n, name, 4 + n % 3) for n, name in enumerate(names)]
    freed = GraphArray("x", graphs.OLD, 4096, "float32", (1024,))
    gone = DanglingArray(freed, graphs.X, (len(nodes),), (1.0, 2.0), (3.0, 4.0))
    return GraphView(
        graphs.graph(*nodes, graphs.kernel(len(nodes), "last", address=graphs.OLD), dangling=(gone,))
    )


def _launch(threads: int, blocks: int, sms: int, slower: int, **more: Any) -> LaunchChart:
    trace = synthetic.launch_trace(threads, sm_count=sms, blocks=blocks)
    times = {name: getattr(trace, name) * slower for name in ("start_ns", "end_ns")}
    return LaunchChart(replace(trace, **times, **more), synthetic.launch_trace)


def _very_many_blocks() -> LaunchChart:
    """More than are drawn, for more than 2.1 s, with a pause on every second SM."""
    trace = synthetic.wide_launch(70_000)
    away = 30_000 * ((trace.sm_id % 2 == 1) & (trace.block_index >= 40_000))
    return LaunchChart(
        replace(trace, start_ns=(trace.start_ns + away) * 5_000, end_ns=(trace.end_ns + away) * 5_000)
    )


def _many_orders() -> TimelineView:
    """More arrows than are drawn at once, and two reads that came too early."""
    view = TimelineView(timelines.many(5000, 5))
    view.panels[0].faults = [(3, 9), (20, 21)]
    view.redraw()
    return view


def _stepped(trace: Any, measured: Any, warp: int | None, **chosen: Any) -> WarpStepper:
    view = WarpStepper(trace, measured, warp)
    for name, value in chosen.items():
        setattr(view, name, value)
    return view


ALL: dict[str, Callable[[], Any]] = {
    **MAKERS,
    **unusual.ALL,
    **exchanges.ALL,
    "launch of nothing": lambda: _launch(256, 0, 4, 1),
    "launch on one SM": lambda: _launch(128, 1, 1, 1, timer_step_ns=32, note="The SM was busy before."),
    "launch on 14 SMs": lambda: _launch(192, 1000, 14, 40_000, grid=(10, 20, 5), block=(64, 3, 1)),
    "launch on 17 SMs": lambda: _launch(256, 1229, 17, 1, grid=(1229, 1, 1)),
    "launch of very many": _very_many_blocks,
    "allocators by line": lambda: _allocator("line"),
    "allocators by stream": lambda: _allocator("stream"),
    "allocators by age": lambda: _allocator("age"),
    "allocators without refusals": lambda: pools.two(50, 3),
    "allocator of nothing": lambda: AllocatorView(Maps([pools.panel(trace_of([]))])),
    "allocator of expandable segments": pools.expandable,
    "allocator by age": lambda: _coloured(pools.expandable(), "age"),
    "allocator of a crowded segment": pools.crowded,
    "allocator of five streams": lambda: pools.streams(5),
    "allocator of nine streams": lambda: pools.streams(9),
    "graph folded": _folded,
    "timelines of a graph": lambda: TimelineView(
        timelines.tiny_kernels(50), timelines.tiny_kernels(50, graph=True), names=("eager", "graph")
    ),
    "timeline of two devices": lambda: TimelineView(timelines.two_devices()),
    "timeline of one operation": lambda: TimelineView(timelines.alone(), selected=5, node=2, panel=0),
    "timeline of nothing": lambda: TimelineView(timelines.empty()),
    "timeline of threads": lambda: TimelineView(timelines.threads()),
    "timeline of many streams": lambda: TimelineView(timelines.overlapped(30, 90)),
    "timeline of many orders": _many_orders,
    "stepper of a block": lambda: _stepped(warps.block(), synthetic.measured_blocks(warps.told(2)), 1),
    "stepper of a warp": lambda: _stepped(
        warps.told(1, 1, stops=()), None, None, lane=9, step=5, by_line=False
    ),
    "stepper of a warp that stops": lambda: _stepped(warps.told(2, 2, watched=()), None, None, step=20),
    "stepper of many steps": lambda: _stepped(warps.long(), None, None, step=700),
    "stepper of no steps": lambda: _stepped(warps.nothing(), None, None),
    "access": lambda: AccessMicroscope(AccessPattern(stride=3, offset=1, padding=1)),
    "graph": lambda: GraphView(graphs.chain(5)),
    "graph compared": lambda: GraphView(graphs.chain(12), graphs.compared(graphs.chain(12))),
    "load": lambda: LoadChart(lambda: synthetic.load_samples()),
}


class Paper:
    """What images are pasted on: notes where each is, and what it holds."""

    def __init__(self, noted: defaultdict[str, list[float]]) -> None:
        self.noted = noted

    def paste(self, image: Any, place: tuple[int, int]) -> None:
        pixels = np.asarray(image.convert("RGB")).astype(np.int64) @ (1 << 16, 1 << 8, 1)
        edge = [0, *(np.flatnonzero((pixels[1:] != pixels[:-1]).any(axis=1)) + 1), len(pixels)]
        where = f"pasted {image.size[0]} × {image.size[1]} at {place[0]}, {place[1]}"
        for above, below in pairwise(edge) if len(edge) <= _ROWS else ():
            starts = np.flatnonzero(np.diff(pixels[above], prepend=-1))
            inks = [f"{ink:06x}" for ink in pixels[above][starts[:_MANY]].tolist()]
            self.noted[f"{where}, from {above:03} to {below}: {' '.join(inks)}"] += starts.tolist()
        if len(edge) > _ROWS:
            self.noted[f"{where}, changes"] += np.flatnonzero(np.diff(pixels.ravel(), prepend=-1)).tolist()


class Strokes(Pen):
    """A pen that notes where it draws, by kind of stroke, colour and look."""

    def __init__(self) -> None:
        super().__init__(1, 1)
        self.noted: defaultdict[str, list[float]] = defaultdict(list)
        self.image: Any = Paper(self.noted)

    def rect(self, x0: float, y0: float, x1: float, y1: float, colour: str) -> None:
        self.noted[f"rect {colour}"] += (x0, y0, x1, y1)

    def outline(self, x0: float, y0: float, x1: float, y1: float, colour: str, width: float = 2) -> None:
        self.noted[f"outline {colour} {width}"] += (x0, y0, x1, y1)

    def line(self, points: list[tuple[float, float]], colour: str, width: float = 1) -> None:
        self.noted[f"line {colour} {width}"] += (at for point in points for at in point)

    def polygon(self, points: list[tuple[float, float]], colour: str) -> None:
        self.noted[f"polygon {colour}"] += (at for point in points for at in point)

    def text(self, x: float, y: float, text: str, **look: Any) -> None:
        looks = " ".join(f"{key}={value}" for key, value in sorted(look.items()))
        self.noted[f"text {looks}".rstrip()] += (x, y, len(text))


def painted(scene: Box) -> list[str]:
    """What the static picture of a scene consists of, a line for each kind of stroke."""
    height, paint = picture.lay(scene, picture.WIDTH_PX - 2 * picture.MARGIN_PX)
    pen = Strokes()
    paint(pen, 0, 0)
    strokes = [f"  {kind}: {_figures(np.array(at))}" for kind, at in sorted(pen.noted.items())]
    return [f"picture: {_plain(height)} high", *strokes]


def lines(view: Any) -> list[str]:
    """Everything that a view says and draws."""
    found = [
        repr(view),
        "",
        *view.describe().split("\n"),
        "",
        f"record: {_kinds(view.record)}",
    ]
    for name, trait in sorted(view.traits(sync=True).items()):
        if name not in _BESIDE | _OTHERS and not name.startswith("_"):
            own = "" if trait.metadata.get("echo_update", True) else " (of the page, never sent back)"
            found.append(f"{name}{own}: {str(getattr(view, name))!r}")
    for control in view.controls:
        found += _told("control", control, 0)
    found.append(f"beside these: {', '.join(sorted(_BESIDE & view.traits(sync=True).keys()))}")
    found += _told("drawn", drawn := view.draw(), 0)
    found.append(f"sent: {(how := _sent(view, drawn))}")
    if how == "of its own":
        found += _told("scene", _unpacked(view.scene, view.data), 0)
    if hasattr(view, "contents"):
        found += _told("contents", _unpacked(view.contents, view.data), 0)
    return [line.rstrip() for line in [*found, *painted(drawn)]]


def _kinds(record: Any) -> str:
    if isinstance(record, list | tuple):
        return f"[{', '.join(map(_kinds, record))}]" if len(record) <= _MANY else f"{len(record)} records"
    return type(record).__name__


def _sent(view: Any, drawn: Any) -> str:
    """Whether the page has the picture."""
    if not view.scene:
        return "nothing"
    return "as drawn" if (view.scene, view.data) == pack(drawn) else "of its own"


def _unpacked(node: Any, data: bytes) -> Any:
    """What `pack` was given for the browser."""
    if isinstance(node, dict) and node.keys() == {"$"}:
        kind, offset, size = node["$"]
        return np.frombuffer(data, kind, size, offset)
    if isinstance(node, dict):
        return {key: _unpacked(value, data) for key, value in node.items()}
    return [_unpacked(value, data) for value in node] if isinstance(node, list) else node


def _told(name: str, node: Any, depth: int) -> Iterator[str]:
    start = f"{'  ' * depth}{name}"
    if isinstance(node, Item | Box):
        node = node.wire()
    if isinstance(node, dict):
        yield f"{start} {node.get('box') or node.get('item') or ''}".rstrip()
        for key, value in node.items():
            if key not in ("box", "item"):
                yield from _told(str(key), value, depth + 1)
    elif isinstance(node, np.ndarray):
        yield f"{start}: {_figures(node)}"
    elif isinstance(node, list | tuple) and len(node) > _MANY and all(isinstance(v, _NUMBERS) for v in node):
        yield f"{start}: {_figures(np.array(node))}"
    elif isinstance(node, list | tuple) and len(node) > _MANY and all(isinstance(v, str) for v in node):
        digest = hashlib.sha256("\n".join(node).encode()).hexdigest()[:12]
        yield f"{start}: {len(node)} texts from {node[0]!r} to {node[-1]!r}, sha256 {digest}"
    elif isinstance(node, list | tuple) and len(line := f"{start}: {_plain(node)}") > _LONG:
        yield start
        for value in node:
            yield from _told("-", value, depth + 1)
    else:
        yield line if isinstance(node, list | tuple) else f"{start}: {_plain(node)}"


def _plain(node: Any) -> str:
    if isinstance(node, float | np.floating):
        return f"{float(node):.7g}"
    if isinstance(node, list | tuple):
        return f"[{', '.join(map(_plain, node))}]"
    if isinstance(node, Item | Box | dict | np.ndarray):
        return " " * _LONG  # has lines of its own
    return str(node).replace("\n", " ⏎ ")


def _figures(array: np.ndarray[Any, Any]) -> str:
    if not array.size or array.dtype.kind not in "biuf":
        return f"{array.dtype}{list(array.shape)} {' '.join(map(str, array.ravel()[:8]))}".rstrip()
    values = array.astype(np.float64).ravel()
    finite = values[np.isfinite(values)]
    # The place of each value counts, too.
    weighed = float((np.abs(finite) * (1 + np.arange(finite.size) % 7)).sum())
    ends = " .. ".join(_plain(value) for value in (values[0], values[-1]))
    return f"{array.dtype.kind}{list(array.shape)} {ends}, sum {finite.sum():.7g}, weighed {weighed:.7g}"


def differences(wanted: list[str], found: list[str]) -> list[str]:
    """Lines that are not the same; numbers may differ in the sixth digit, as on other processors."""
    told = []
    for number, (one, other) in enumerate(zip_longest(wanted, found, fillvalue=""), 1):
        same_words = _NUMBER.sub("#", one) == _NUMBER.sub("#", other)
        pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=False)
        if not same_words or not all(np.isclose(float(a), float(b), rtol=1e-5, atol=1e-6) for a, b in pairs):
            told += [f"line {number}", f"  - {one}", f"  + {other}"]
    return told


def kept(name: str) -> Path:
    """Where the lines of a view are."""
    return FOLDER / f"{name.replace(' ', '_')}.txt"


def main() -> None:
    pictures = Path(tempfile.mkdtemp(prefix="gpulab-drawn-"))
    FOLDER.mkdir(exist_ok=True)
    for name, make in ALL.items():
        view = make()
        kept(name).write_text("\n".join(lines(view)) + "\n", encoding="utf-8")
        (pictures / f"{name}.png").write_bytes(view.png())
        view.close()
    print(f"{len(ALL)} views; look at their pictures in {pictures}")


if __name__ == "__main__":
    sys.exit(main())
