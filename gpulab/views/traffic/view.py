"""The traffic view: expressions in the colours of their kernels, fusion boundaries, and the bytes moved."""

from __future__ import annotations

from collections import defaultdict

from gpulab.views._base import View
from gpulab.views.parts.boxes import Box, column, fold, legend, table, words
from gpulab.views.parts.dag import DrawnNode, draw_dag
from gpulab.views.parts.items import Labels
from gpulab.views.parts.palette import KERNEL_COLOURS
from gpulab.views.parts.plots import make_rects, make_sentence_args, make_y_ticks, plot
from gpulab.words import count, duration, listing, number, size
from virtualgpu.records.traffic import Expression, KernelSet, Traffic

NODE_SHAPES = {"reduce": "hexagon", "matmul": "copy", "input": "round", "kernel": "set"}
MAX_GRAPH_HEIGHT_PX = 330
ROW_PX = 22
BAR_HEIGHT_PX = 14
NAME_COLUMN_PX = 180
# Widths as shares: the longest bar, the text after it, and the start of the bars of time.
BAR_WIDTH, TEXT_WIDTH = 0.3, 0.2
TIME_X = BAR_WIDTH + TEXT_WIDTH


class TrafficView(View):
    """A view of the memory traffic of array expressions, and of the kernels that compute them.

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
        """The record of the function's memory traffic."""
        return self._traffic

    def sentence(self) -> str:
        original_set, *variant_sets = self._traffic.ways
        variant_texts = "; ".join(
            f"{variant_set.way}: {number(variant_set.kernels)}, {size(variant_set.moved_bytes)}"
            for variant_set in variant_sets
        )
        passes_text = count(original_set.kernels, "pass", "passes")
        return f"{passes_text} as written moves {size(original_set.moved_bytes)}; {variant_texts}."

    def describe(self) -> str:
        lines = [self.sentence()]
        lines += [
            _make_row_text(expression) for expression in self._traffic.expressions if expression.kernel >= 0
        ]
        lines += self._make_reason_texts()
        lines += [f"Folded while tracing: {folded_text}." for folded_text in self._traffic.folded]
        lines += [f"Python needs a value here: {break_location}." for break_location in self._traffic.breaks]
        return "\n".join(lines)

    def draw(self) -> Box:
        record = self._traffic
        kernel_expressions = [expression for expression in record.expressions if expression.kernel >= 0]
        expression_rows = [
            (
                expression.name,
                size(expression.read_bytes),
                size(expression.written_bytes),
                duration(expression.time_ns),
                f"kernel {expression.kernel + 1}",
            )
            for expression in kernel_expressions
        ]
        return column(
            self._draw_kernel_sets(),
            legend(self._list_legend_entries()),
            self._draw_graph(),
            *(words(reason, "strong") for reason in self._make_reason_texts()[:6]),
            *(words(f"Folded while tracing: {folded_text}", "note") for folded_text in record.folded),
            *(
                words(f"Python needs a value here: {break_location}", "note")
                for break_location in record.breaks
            ),
            fold(
                "Each expression by itself",
                table(expression_rows, headings=("expression", "reads", "writes", "time", "fused into")),
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

    def _list_legend_entries(self) -> list[tuple[str, str]]:
        """Return the legend entries for kernels, other ways to build kernels, and fusion boundaries."""
        kernel_count = 1 + max((expression.kernel for expression in self._traffic.expressions), default=-1)
        legend_entries = [
            (colour, f"kernel {index + 1}") for index, colour in enumerate(KERNEL_COLOURS[:kernel_count])
        ]
        if kernel_count > len(KERNEL_COLOURS):
            legend_entries[-1] = (KERNEL_COLOURS[-1], f"kernels {len(KERNEL_COLOURS)} to {kernel_count}")
        if any(
            kernel < 0
            for kernel_set in self._traffic.ways
            for kernel, *_ in self._list_kernel_parts(kernel_set)
        ):
            legend_entries.append(("other", "other kernels"))
        return [*legend_entries, ("error", "cannot be fused")] if self._traffic.edges else legend_entries

    def _list_kernel_parts(self, kernel_set: KernelSet) -> list[tuple[int, str, int, int]]:
        """Return the parts of the bars for one way to build kernels. Each part has a kernel index, a
        sentence, the bytes and the time in ns.

        Without data per kernel, there is one part with the kernel index -1.
        """
        record = self._traffic
        kernel_expressions = [expression for expression in record.expressions if expression.kernel >= 0]
        kernels = list(record.kernels)
        for kernel_parts in (kernel_expressions, kernels):
            moved_bytes = sum(map(_count_moved_bytes, kernel_parts))
            if (len(kernel_parts), moved_bytes) == (kernel_set.kernels, kernel_set.moved_bytes):
                return [
                    (
                        kernel_part.kernel,
                        f"{kernel_set.way}: {_make_part_text(kernel_part)}.",
                        _count_moved_bytes(kernel_part),
                        kernel_part.time_ns,
                    )
                    for kernel_part in kernel_parts
                ]
        text = f"{kernel_set.way}: {kernel_set.note or count(kernel_set.kernels, 'kernel')}."
        return [(-1, text, kernel_set.moved_bytes, kernel_set.time_ns or 0)]

    def _draw_kernel_sets(self) -> Box:
        """Return a bar of bytes and a bar of time for each way to build kernels, in the kernels' colours."""
        kernel_sets = self._traffic.ways
        most_bytes = max(kernel_set.moved_bytes for kernel_set in kernel_sets) or 1
        longest_ns = max(kernel_set.time_ns or 0 for kernel_set in kernel_sets) or 1
        bar_segments = []
        segment_sentences = []
        bar_labels = []
        for index, kernel_set in enumerate(kernel_sets):
            bar_top = ROW_PX * (index + 1)
            bytes_x, time_x = 0.0, TIME_X
            for kernel, sentence, moved_bytes, time_ns in self._list_kernel_parts(kernel_set):
                colour = len(KERNEL_COLOURS) if kernel < 0 else min(kernel, len(KERNEL_COLOURS) - 1)
                bytes_end_x, time_end_x = (
                    bytes_x + BAR_WIDTH * moved_bytes / most_bytes,
                    time_x + BAR_WIDTH * time_ns / longest_ns,
                )
                for x0, x1 in ((bytes_x, bytes_end_x), (time_x, time_end_x)):
                    if x1 > x0:
                        bar_segments.append((x0, x1, bar_top, bar_top + BAR_HEIGHT_PX, colour))
                        segment_sentences.append(sentence)
                bytes_x, time_x = bytes_end_x, time_end_x
            time_text = "not executed" if kernel_set.time_ns is None else duration(kernel_set.time_ns)
            size_text = size(kernel_set.moved_bytes)
            y = bar_top + BAR_HEIGHT_PX / 2
            bar_labels += [
                (
                    bytes_x,
                    y,
                    f"{count(kernel_set.kernels, 'kernel')}, {size_text}\n{size_text}",
                    TIME_X - bytes_x,
                ),
                (time_x, y, time_text, TIME_X + BAR_WIDTH + TEXT_WIDTH - time_x),
            ]
        label_x, label_y, label_texts, max_text_widths = zip(*bar_labels, strict=True)
        x_domain = (0.0, TIME_X + BAR_WIDTH + TEXT_WIDTH)
        names_y = [ROW_PX * (index + 1) + BAR_HEIGHT_PX / 2 for index in range(len(kernel_sets))]
        headings = ["bytes moved", "time"]
        return plot(
            ROW_PX * (len(kernel_sets) + 1),
            x_domain,
            make_rects(
                bar_segments, [*KERNEL_COLOURS, "other"], inset=0.5, **make_sentence_args(segment_sentences)
            ),
            Labels(
                label_x,
                label_y,
                label_texts,
                dx=6,
                room=[0.96 * max_text_width for max_text_width in max_text_widths],
            ),
            Labels([0, TIME_X], [BAR_HEIGHT_PX / 2] * 2, headings, colour="muted"),
            make_y_ticks(names_y, [kernel_set.way for kernel_set in kernel_sets], x_domain),
            left=NAME_COLUMN_PX,
            label=self.sentence(),
            hint="Point at a part of a bar, or use the arrow keys.",
        )

    def _draw_graph(self) -> Box:
        expressions = self._traffic.expressions
        unfusable_edges = {(str(edge.first), str(edge.then)) for edge in self._traffic.edges}
        nodes = {
            str(key): DrawnNode(
                expression.name,
                KERNEL_COLOURS[min(expression.kernel, len(KERNEL_COLOURS) - 1)]
                if expression.kernel >= 0
                else "grid",
                NODE_SHAPES.get(expression.kind, "box"),
                size(expression.read_bytes + expression.written_bytes) if expression.kernel >= 0 else "",
                _make_row_text(expression) if expression.kernel >= 0 else expression.name,
            )
            for key, expression in enumerate(expressions)
            if expression.kind not in ("view", "host")
        }
        expression_edges = list(
            dict.fromkeys(
                (str(source_index), key)
                for key in nodes
                for expression_index in expressions[int(key)].after
                if (source_index := self._find_source_expression(expression_index)) is not None
            )
        )
        return draw_dag(
            nodes,
            expression_edges,
            label=f"{self.sentence()} {count(len(unfusable_edges), 'fusion boundary', 'fusion boundaries')}.",
            max_height_px=MAX_GRAPH_HEIGHT_PX,
            marked=unfusable_edges,
        )

    def _find_source_expression(self, expression_index: int) -> int | None:
        """Follow views and host values back to the expression that computed the data, and return its index.
        If there is none, return None.
        """
        while (expression := self._traffic.expressions[expression_index]).kind in ("view", "host"):
            if not expression.after:
                return None
            expression_index = expression.after[0]
        return expression_index

    def _make_reason_texts(self) -> list[str]:
        """Return a sentence for each reason why expressions are not fused, with the edges that it affects."""
        edges_of_reason = defaultdict[str, list[str]](list)
        for edge in self._traffic.edges:
            source_name, target_name = (
                self._traffic.expressions[expression_index].name
                for expression_index in (edge.first, edge.then)
            )
            edges_of_reason[edge.why].append(f"{source_name} → {target_name}")
        return [
            f"Red: {listing([*dict.fromkeys(edge_names)])}: {reason}."
            for reason, edge_names in edges_of_reason.items()
        ]


def _count_moved_bytes(expression: Expression) -> int:
    return expression.read_bytes + expression.written_bytes


def _make_part_text(expression: Expression) -> str:
    kernel_name = f"kernel {expression.kernel + 1}"
    kernel_text = "" if expression.name == kernel_name else f", {kernel_name}"
    size_text = size(_count_moved_bytes(expression))
    return f"{expression.name}{kernel_text}, {size_text} in {duration(expression.time_ns)}"


def _make_row_text(expression: Expression) -> str:
    return (
        f"{expression.name} reads {size(expression.read_bytes)} and writes {size(expression.written_bytes)}; "
        f"fused into kernel {expression.kernel + 1}."
    )
