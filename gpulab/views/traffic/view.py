"""Traffic view: expressions in the colours of their kernels, fusion boundaries, and the bytes moved."""

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
    """View of the memory traffic of a function's expressions, and of the kernels that they share.

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
        original, *variants = self._traffic.ways
        texts = "; ".join(
            f"{variant.way}: {number(variant.kernels)}, {size(variant.moved_bytes)}" for variant in variants
        )
        passes = count(original.kernels, "pass", "passes")
        return f"{passes} as written moves {size(original.moved_bytes)}; {texts}."

    def describe(self) -> str:
        lines = [self.sentence()]
        lines += [_row_text(row) for row in self._traffic.expressions if row.kernel >= 0]
        lines += self._reasons()
        lines += [f"Folded while tracing: {row}." for row in self._traffic.folded]
        lines += [f"Python needs a value here: {row}." for row in self._traffic.breaks]
        return "\n".join(lines)

    def draw(self) -> Box:
        record = self._traffic
        largest_bytes = max(item.moved_bytes for item in record.ways) or 1
        executed = [item for item in record.expressions if item.kernel >= 0]
        rows = [
            (
                item.name,
                size(item.read_bytes),
                size(item.written_bytes),
                duration(item.time_ns),
                f"kernel {item.kernel + 1}",
            )
            for item in executed
        ]
        return column(
            bars([self._bar(item, largest_bytes) for item in record.ways], label=0.3),
            words("Expressions in the colours of their kernels; red: cannot be fused.", "note"),
            self._graph(),
            *(words(item, "strong") for item in self._reasons()[:6]),
            *(words(f"Folded while tracing: {item}", "note") for item in record.folded),
            *(words(f"Python needs a value here: {item}", "note") for item in record.breaks),
            fold(
                "Each expression by itself",
                table(rows, headings=("expression", "reads", "writes", "time", "fused into")),
                opened=False,
            ),
            fold(
                "Generated code",
                column(
                    *(
                        words(f"kernel {index + 1}\n{source_text}", "mono")
                        for index, (source_text, _) in enumerate(record.sources)
                    )
                ),
                opened=False,
            ),
        )

    def _bar(self, variant: KernelSet, largest_bytes: int) -> dict[str, object]:
        time_text = f", {duration(variant.time_ns)}" if variant.time_ns is not None else ""
        kernels = count(variant.kernels, "kernel")
        return {
            "label": variant.way,
            "share": variant.moved_bytes / largest_bytes,
            "value": f"{kernels}, {size(variant.moved_bytes)}{time_text}",
            "title": variant.note or f"{variant.way}: {kernels}",
        }

    def _graph(self) -> Box:
        expressions = self._traffic.expressions
        red = {(str(edge.first), str(edge.then)) for edge in self._traffic.edges}
        nodes = {
            str(key): DrawnNode(
                expression.name,
                COLOURS[expression.kernel % len(COLOURS)] if expression.kernel >= 0 else "grid",
                SHAPES.get(expression.kind, "box"),
                size(expression.read_bytes + expression.written_bytes) if expression.kernel >= 0 else "",
                _row_text(expression) if expression.kernel >= 0 else expression.name,
            )
            for key, expression in enumerate(expressions)
            if expression.kind not in ("view", "host")
        }
        edges = list(
            dict.fromkeys(
                (str(source), key)
                for key in nodes
                for number in expressions[int(key)].after
                if (source := self._source_of(number)) is not None
            )
        )
        return dag(
            nodes,
            edges,
            label=f"{self.sentence()} {count(len(red), 'fusion boundary', 'fusion boundaries')}.",
            max_height_px=GRAPH_PX,
            marked=red,
        )

    def _source_of(self, number: int) -> int | None:
        """Return the expression that computes a value, behind views of it; None for inputs and constants."""
        while (expression := self._traffic.expressions[number]).kind in ("view", "host"):
            if not expression.after:
                return None
            number = expression.after[0]
        return number

    def _reasons(self) -> list[str]:
        """Return a sentence for each reason of fusion boundaries, with their edges."""
        edges_of_reason = defaultdict[str, list[str]](list)
        for edge in self._traffic.edges:
            source, target = (self._traffic.expressions[number].name for number in (edge.first, edge.then))
            edges_of_reason[edge.why].append(f"{source} → {target}")
        return [
            f"Red: {listing([*dict.fromkeys(names)])}: {reason}." for reason, names in edges_of_reason.items()
        ]


def _row_text(expression: Expression) -> str:
    return (
        f"{expression.name} reads {size(expression.read_bytes)} and writes {size(expression.written_bytes)}; "
        f"fused into kernel {expression.kernel + 1}."
    )
