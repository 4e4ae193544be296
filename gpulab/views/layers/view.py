"""The layers view: the software layers that a call uses, from the framework to the device."""

from __future__ import annotations

from collections.abc import Sequence

from gpulab.views._base import View
from gpulab.views.parts.boxes import Box, column, fold, words
from gpulab.views.parts.dag import DrawnNode, draw_dag
from gpulab.words import count, listing
from virtualgpu.records.libraries.layers import LAYERS, CallLayers

COLOURS = ("accent", "purple", "warn", "other", "good")
MAX_SYMBOLS = 5  # of a layer that are drawn
_MAX_NAME_LENGTH = 26
_MAX_HEIGHT_PX = 190


class LayersView(View):
    """A view of the software layers that one or several calls use.

    Parameters
    ----------
    record
        The layers of each call; the first one is shown unfolded.
    """

    def __init__(self, record: Sequence[CallLayers]) -> None:
        self._call_stacks = tuple(record)
        first_stack = self._call_stacks[0]
        super().__init__(
            title=f"Layer by layer: {first_stack.call}",
            source=first_stack.provenance.source,
            caption="Each layer's symbols in the order of their first call; calls that only query a "
            "value are last. "
            + " ".join(f"{stack.package}: {stack.provenance.label}." for stack in self._call_stacks),
        )
        self.redraw()

    @property
    def record(self) -> tuple[CallLayers, ...]:
        """The record of the software layers for each call."""
        return self._call_stacks

    def sentence(self) -> str:
        return " ".join(f"{_describe_stack(stack)}; {stack.provenance.label}." for stack in self._call_stacks)

    def describe(self) -> str:
        lines = [self.sentence()]
        for stack in self._call_stacks:
            for layer, symbols in zip(LAYERS, stack.layers, strict=True):
                calls_text = (
                    listing([_format_symbol(*symbol) for symbol in symbols])
                    if symbols
                    else "no call was recorded"
                )
                lines.append(f"{stack.package}, {layer}: {calls_text}.")
            lines += [f"{stack.package}: {stack.note}"] if stack.note else []
        return "\n".join(lines)

    def draw(self) -> Box:
        first_stack, *other_stacks = self._call_stacks
        return column(
            self._draw_stack(first_stack),
            *(
                fold(f"{stack.package}, {stack.provenance.label}", self._draw_stack(stack), opened=False)
                for stack in other_stacks
            ),
        )

    def _draw_stack(self, stack: CallLayers) -> Box:
        nodes: dict[str, DrawnNode] = {}
        edges: list[tuple[str, str]] = []
        previous_keys: list[str] = []
        for layer, symbols, colour in zip(LAYERS, stack.layers, COLOURS, strict=True):
            node_keys = []
            for symbol, calls in symbols[:MAX_SYMBOLS]:
                node_key = f"{layer} {symbol}"
                library, _, name = symbol.rpartition(": ")
                short_name = name if len(name) <= _MAX_NAME_LENGTH else f"{name[: _MAX_NAME_LENGTH - 1]}…"
                nodes[node_key] = DrawnNode(
                    short_name, colour, "box", library or layer, f"{layer}: {_format_symbol(symbol, calls)}"
                )
                node_keys.append(node_key)
            edges += [(caller, callee) for caller in previous_keys[:1] for callee in node_keys]
            previous_keys = node_keys or previous_keys
        omission_texts = [
            f"{layer}: {count(len(symbols) - MAX_SYMBOLS, 'more symbol')}"
            for layer, symbols in zip(LAYERS, stack.layers, strict=True)
            if len(symbols) > MAX_SYMBOLS
        ]
        note_text = " ".join(
            filter(None, (stack.note, f"Not drawn: {listing(omission_texts)}." if omission_texts else ""))
        )
        stack_plot = draw_dag(nodes, edges, label=_describe_stack(stack), max_height_px=_MAX_HEIGHT_PX)
        return column(stack_plot, words(note_text, "note")) if note_text else stack_plot


def _format_symbol(symbol: str, calls: int) -> str:
    return symbol if calls == 1 else f"{symbol} ({calls} times)"


def _describe_stack(stack: CallLayers) -> str:
    layer_counts = [
        f"{layer} {count(len(symbols), 'symbol')}"
        for layer, symbols in zip(LAYERS, stack.layers, strict=True)
        if symbols
    ]
    return f"{stack.call} in {stack.package}: {listing(layer_counts)}"
