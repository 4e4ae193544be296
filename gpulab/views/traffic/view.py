"""Traffic view: expressions in the colours of their kernels, red edges, and the bytes moved."""

from __future__ import annotations

from collections import defaultdict

from gpulab.views._base import View
from gpulab.views.parts.boxes import Box, bars, column, fold, table, words
from gpulab.views.parts.dag import DrawnNode, dag
from gpulab.words import count, duration, listing, number, size
from virtualgpu.records.traffic import Expression, KernelSet, Traffic

COLOURS = ("accent", "good", "warn", "purple", "accent-2", "other")
SHAPES = {"reduce": "hexagon", "matmul": "copy", "input": "round", "kernel": "set"}
GRAPH_PX = 330


class TrafficView(View):
    """The memory traffic of a function's expressions, and the kernels that they share.

    Parameters
    ----------
    record
        The function's traffic.
    """

    def __init__(self, record: Traffic) -> None:
        self._traffic = record
        super().__init__(
            title=f"Traffic of {record.function}",
            source=record.provenance.source,
            caption=f"Bytes follow from the arrays, each once for each kernel that reads or writes it; "
            f"times {record.provenance.label}.",
        )
        self.redraw()

    @property
    def record(self) -> Traffic:
        """The function's traffic."""
        return self._traffic

    def sentence(self) -> str:
        first, *others = self._traffic.ways
        texts = "; ".join(
            f"{kernel_row.way}: {number(kernel_row.kernels)}, {size(kernel_row.moved_bytes)}"
            for kernel_row in others
        )
        return f"{count(first.kernels, 'pass', 'passes')} as written move {size(first.moved_bytes)}; {texts}."

    def describe(self) -> str:
        lines = [self.sentence()]
        lines += [_row_text(row) for row in self._traffic.expressions if row.kernel >= 0]
        lines += self._reasons()
        lines += [f"Folded while tracing: {row}." for row in self._traffic.folded]
        lines += [f"Python asks for a value: {row}." for row in self._traffic.breaks]
        return "\n".join(lines)

    def draw(self) -> Box:
        record = self._traffic
        whole = max(each.moved_bytes for each in record.ways) or 1
        run = [each for each in record.expressions if each.kernel >= 0]
        rows = [
            (
                each.name,
                size(each.read_bytes),
                size(each.written_bytes),
                duration(each.time_ns),
                f"kernel {each.kernel + 1}",
            )
            for each in run
        ]
        return column(
            bars([self._bar(each, whole) for each in record.ways], label=0.3),
            words("Expressions in the colours of their kernels; red: cannot be fused.", "note"),
            self._graph(),
            *(words(each, "strong") for each in self._reasons()[:6]),
            *(words(f"Folded while tracing: {each}", "note") for each in record.folded),
            *(words(f"Python asks for a value: {each}", "note") for each in record.breaks),
            fold(
                "Each expression by itself",
                table(rows, headings=("expression", "reads", "writes", "time", "fused into")),
                opened=False,
            ),
            fold(
                "What was generated",
                column(
                    *(
                        words(f"kernel {at + 1}\n{shown}", "mono")
                        for at, (shown, _) in enumerate(record.sources)
                    )
                ),
                opened=False,
            ),
        )

    def _bar(self, way: KernelSet, whole: int) -> dict[str, object]:
        took = f", {duration(way.time_ns)}" if way.time_ns is not None else ""
        kernels = count(way.kernels, "kernel")
        return {
            "label": way.way,
            "share": way.moved_bytes / whole,
            "value": f"{kernels}, {size(way.moved_bytes)}{took}",
            "title": way.note or f"{way.way}: {kernels}",
        }

    def _graph(self) -> Box:
        expressions = self._traffic.expressions
        red = {(str(e.first), str(e.then)) for e in self._traffic.edges}
        shown = {
            str(at): DrawnNode(
                each.name,
                COLOURS[each.kernel % len(COLOURS)] if each.kernel >= 0 else "grid",
                SHAPES.get(each.kind, "box"),
                size(each.read_bytes + each.written_bytes) if each.kernel >= 0 else "",
                _row_text(each) if each.kernel >= 0 else each.name,
            )
            for at, each in enumerate(expressions)
            if each.kind not in ("view", "host")
        }
        edges = list(
            dict.fromkeys(
                (str(source), at)
                for at in shown
                for n in expressions[int(at)].after
                if (source := self._behind(n)) is not None
            )
        )
        return dag(
            shown,
            edges,
            label=f"{self.sentence()} {count(len(red), 'red edge')}.",
            max_height_px=GRAPH_PX,
            marked=red,
        )

    def _behind(self, number: int) -> int | None:
        """Return the expression whose result is viewed; None for a constant or an array from outside."""
        while (each := self._traffic.expressions[number]).kind in ("view", "host"):
            if not each.after:
                return None
            number = each.after[0]
        return number

    def _reasons(self) -> list[str]:
        """Return each reason for red edges once, after the edges that it applies to."""
        held = defaultdict[str, list[str]](list)
        for edge in self._traffic.edges:
            first, then = (self._traffic.expressions[n].name for n in (edge.first, edge.then))
            held[edge.why].append(f"{first} → {then}")
        return [f"Red: {listing([*dict.fromkeys(names)])}: {why}." for why, names in held.items()]


def _row_text(each: Expression) -> str:
    return (
        f"{each.name} reads {size(each.read_bytes)} and writes {size(each.written_bytes)}; fused into kernel "
        f"{each.kernel + 1}."
    )
