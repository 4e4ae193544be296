"""Layers view: the layers that a call passed through, from the framework down to the device."""

from __future__ import annotations

from collections.abc import Sequence

from gpulab.views._base import View
from gpulab.views.parts.boxes import Box, column, fold, words
from gpulab.views.parts.dag import DrawnNode, dag
from gpulab.words import count, listing
from virtualgpu.records.libraries.layers import LAYERS, Followed

COLOURS = ("accent", "purple", "warn", "other", "good")
MOST = 5  # symbols of a layer that are drawn
_LONGEST = 26
_PX = 190


class LayersView(View):
    """The layers of software that calls passed through.

    Parameters
    ----------
    record
        Each stack; the first one is open.
    """

    def __init__(self, record: Sequence[Followed]) -> None:
        self._followed = tuple(record)
        first = self._followed[0]
        super().__init__(
            title=f"Layer by layer: {first.call}",
            source=first.provenance.source,
            caption="Each layer's symbols in the order of their first call, mere questions last. "
            + " ".join(f"{each.package}: {each.provenance.label}." for each in self._followed),
        )
        self.redraw()

    @property
    def record(self) -> tuple[Followed, ...]:
        """The recorded layers of each call."""
        return self._followed

    def sentence(self) -> str:
        return " ".join(f"{_told(each)}; {each.provenance.label}." for each in self._followed)

    def describe(self) -> str:
        lines = [self.sentence()]
        for stack in self._followed:
            for layer, symbols in zip(LAYERS, stack.layers, strict=True):
                calls = listing([_named(*symbol) for symbol in symbols]) if symbols else "nothing was seen"
                lines.append(f"{stack.package}, {layer}: {calls}.")
            lines += [f"{stack.package}: {stack.note}"] if stack.note else []
        return "\n".join(lines)

    def draw(self) -> Box:
        first, *others = self._followed
        return column(
            self._stack(first),
            *(
                fold(f"{each.package}, {each.provenance.label}", self._stack(each), opened=False)
                for each in others
            ),
        )

    def _stack(self, each: Followed) -> Box:
        nodes: dict[str, DrawnNode] = {}
        edges: list[tuple[str, str]] = []
        above: list[str] = []
        for layer, symbols, colour in zip(LAYERS, each.layers, COLOURS, strict=True):
            here = []
            for symbol, calls in symbols[:MOST]:
                key = f"{layer} {symbol}"
                library, _, name = symbol.rpartition(": ")
                short = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
                nodes[key] = DrawnNode(
                    short, colour, "box", library or layer, f"{layer}: {_named(symbol, calls)}"
                )
                here.append(key)
            edges += [(one, other) for one in above[:1] for other in here]
            above = here or above
        more = [
            f"{layer}: {count(len(symbols) - MOST, 'more symbol')}"
            for layer, symbols in zip(LAYERS, each.layers, strict=True)
            if len(symbols) > MOST
        ]
        note = " ".join(filter(None, (each.note, f"Not drawn: {listing(more)}." if more else "")))
        picture = dag(nodes, edges, label=_told(each), max_height_px=_PX)
        return column(picture, words(note, "note")) if note else picture


def _named(symbol: str, calls: int) -> str:
    return symbol if calls == 1 else f"{symbol} ({calls} times)"


def _told(each: Followed) -> str:
    seen = [
        f"{layer} {count(len(symbols), 'symbol')}"
        for layer, symbols in zip(LAYERS, each.layers, strict=True)
        if symbols
    ]
    return f"{each.call} in {each.package}: {listing(seen)}"
