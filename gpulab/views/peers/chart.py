"""The chart of the links between GPUs: direct links above the GPUs, and the route through the host below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from matplotlib.patches import FancyBboxPatch

from gpulab.views._figure import FigureView, Painter, colour
from gpulab.views.parts.palette import choose_ink
from gpulab.views.tables import Cell, Table
from gpulab.words import count, listing, number
from virtualgpu.records import Provenance

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DIRECT_LINK_COLOUR = "accent"
HOST_COLOUR = "other"
HOST_Y, GPU_Y, LINK_Y = 0.0, 1.0, 2.0
BOX_HEIGHT_UNITS = 0.36
MAX_LINE_POINTS = 8.0
PLAIN_LINE_POINTS = 1.5


class PeersChart(FigureView):
    """A chart of the GPUs of a machine, and of the links through which they access each other's memory.

    Parameters
    ----------
    reach
        By pair of GPUs, whether the first one can access the memory of the second one directly.
    rates
        Rate of a large copy in one direction in GB/s: directly (True) and through the host (False). Empty if
        it is not known.
    provenance
        Origin of the rates and of `reach`.
    link
        Name of the direct links, such as ``"NVSwitch"``.
    """

    def __init__(
        self,
        reach: Mapping[tuple[int, int], bool],
        rates: Mapping[bool, float],
        provenance: Provenance,
        link: str = "direct",
    ) -> None:
        self._has_direct_access = dict(reach)
        self.rates = dict(rates)
        self.provenance = provenance
        self.link = link
        self.gpus = range(1 + max(source_gpu for source_gpu, _ in reach))
        caption = f"{provenance.label}."
        if rates and len(self.gpus) > 1:
            caption = (
                f"Rates of a large copy in one direction while no other copy runs, {provenance.label}. "
                "The widths of the links are proportional to the rates."
            )
        super().__init__(
            title=f"Links of {count(len(self.gpus), 'GPU')}",
            caption=f"{caption[0].upper()}{caption[1:]}",
            source=provenance.source,
        )
        self.height_in = 3.0 if any(reach.values()) else 2.3

    @property
    def record(self) -> dict[tuple[int, int], bool]:
        """A dictionary that maps each pair of GPUs to True if the first can directly access the memory of the
        second.
        """
        return self._has_direct_access

    @property
    def groups(self) -> list[list[int]]:
        """The groups of GPUs that directly access each other's memory. The result is empty if the links do
        not form groups.
        """
        gpu_groups: list[list[int]] = []
        for gpu in self.gpus:
            connected_gpus = [
                peer_gpu
                for peer_gpu in self.gpus
                if peer_gpu == gpu or self._has_direct_access[gpu, peer_gpu]
            ]
            if connected_gpus not in gpu_groups:
                gpu_groups.append(connected_gpus)
        is_partition = [gpu for gpu_group in gpu_groups for gpu in gpu_group] == [*self.gpus]
        return [gpu_group for gpu_group in gpu_groups if len(gpu_group) > 1] if is_partition else []

    def sentence(self) -> str:
        if len(self.gpus) == 1:
            return f"This machine has one GPU, so there are no links between GPUs; {self.provenance.label}."
        gpu_pairs = [gpu_pair for gpu_pair in self._has_direct_access if gpu_pair[0] != gpu_pair[1]]
        direct_pair_count = sum(self._has_direct_access[gpu_pair] for gpu_pair in gpu_pairs)
        direct_pairs_text = (
            f"{direct_pair_count} of {len(gpu_pairs)} directions are direct{self._format_rate(True)}"
        )
        sentence_clauses = [
            direct_pairs_text if direct_pair_count else "no GPU accesses the memory of another GPU directly"
        ]
        if direct_pair_count < len(gpu_pairs):
            quantifier = "other" if direct_pair_count else "all"
            sentence_clauses.append(f"{quantifier} copies go through the host{self._format_rate(False)}")
        return f"Links of {len(self.gpus)} GPUs: {'; '.join(sentence_clauses)}; {self.provenance.label}."

    def _format_rate(self, is_direct: bool) -> str:
        link_suffix = f" over {self.link}" if is_direct and self.link != "direct" else ""
        return f"{link_suffix} at {number(self.rates[is_direct])} GB/s" if self.rates else link_suffix

    def describe(self) -> str:
        lines = [self.sentence()]
        for gpu in self.gpus if len(self.gpus) > 1 else ():
            for is_direct, route_text in ((True, "directly"), (False, "through the host")):
                reached_gpu_names = [
                    f"GPU {peer_gpu}"
                    for peer_gpu in self.gpus
                    if peer_gpu != gpu and self._has_direct_access[gpu, peer_gpu] == is_direct
                ]
                if reached_gpu_names:
                    lines.append(f"GPU {gpu} accesses {listing(reached_gpu_names)} {route_text}.")
        return "\n".join(lines)

    def notes(self) -> tuple[str, ...]:
        """Return a note if the machine has only one GPU."""
        return (
            ("There is no other GPU with which this GPU could exchange data.",) if len(self.gpus) == 1 else ()
        )

    def tables(self) -> tuple[Table, ...]:
        """Return a table with one row and one column per GPU. Each cell contains the rate in GB/s, or states
        whether the link is direct.
        """
        if len(self.gpus) == 1:
            return ()
        link_texts = {True: "direct", False: "by the host"}
        if self.rates:
            link_texts = {True: number(self.rates[True]), False: f"{number(self.rates[False])}, host"}

        def make_cell(source_gpu: int, target_gpu: int) -> Cell | None:
            is_direct = self._has_direct_access[source_gpu, target_gpu]
            return (
                None
                if source_gpu == target_gpu
                else Cell(self.rates.get(is_direct, is_direct), link_texts[is_direct])
            )

        gpu_rows = tuple(
            (f"GPU {source_gpu}", *(make_cell(source_gpu, target_gpu) for target_gpu in self.gpus))
            for source_gpu in self.gpus
        )
        table_title = f"From row to column{', GB/s of large copies' if self.rates else ''}"
        return (Table(table_title, ("", *(f"GPU {gpu}" for gpu in self.gpus)), gpu_rows),)

    def painters(self) -> tuple[Painter, ...]:
        return (self._paint,)

    def _paint(self, ax: Axes) -> None:
        """Draw the GPUs in a row, their direct links above them, and the host below them."""
        last_gpu = self.gpus[-1]
        direct_pairs = [gpu_pair for gpu_pair, is_direct in self._has_direct_access.items() if is_direct]
        for gpu_group in self.groups:
            link_text = self.link
            if self.rates:
                link_text += f": {number(self.rates[True])} GB/s from GPU to GPU"
            for gpu in gpu_group:
                _draw_line(ax, gpu, GPU_Y, LINK_Y, DIRECT_LINK_COLOUR, self._choose_line_width(True))
            _draw_box(ax, gpu_group[0], gpu_group[-1], LINK_Y, link_text, DIRECT_LINK_COLOUR)
        if not self.groups:
            for source_gpu, target_gpu in direct_pairs:
                if source_gpu < target_gpu or (target_gpu, source_gpu) not in direct_pairs:
                    self._draw_arc(
                        ax, source_gpu, target_gpu, is_mutual=(target_gpu, source_gpu) in direct_pairs
                    )
        host_text = "host"
        if len(self.gpus) > 1:
            host_text = "host, over PCIe"
            if self.rates:
                host_text += f": {number(self.rates[False])} GB/s from GPU to GPU"
        for gpu in self.gpus:
            _draw_line(ax, gpu, GPU_Y, HOST_Y, HOST_COLOUR, self._choose_line_width(False))
            _draw_box(ax, gpu, gpu, GPU_Y, f"GPU {gpu}", "panel")
        _draw_box(ax, 0, last_gpu, HOST_Y, host_text, HOST_COLOUR)
        middle_x = last_gpu / 2
        half_width = max(last_gpu + 1.2, 4.5) / 2
        ax.set_xlim(middle_x - half_width, middle_x + half_width)
        ax.set_ylim(HOST_Y - 0.3, (LINK_Y if direct_pairs else GPU_Y) + 0.3)
        ax.axis("off")

    def _choose_line_width(self, is_direct: bool) -> float:
        """Return the width in points of the line for a link."""
        if not self.rates:
            return PLAIN_LINE_POINTS
        return max(0.6, MAX_LINE_POINTS * self.rates[is_direct] / max(self.rates.values()))

    def _draw_arc(self, ax: Axes, source_gpu: int, target_gpu: int, is_mutual: bool) -> None:
        ax.annotate(
            "",
            (target_gpu, GPU_Y + BOX_HEIGHT_UNITS / 2),
            (source_gpu, GPU_Y + BOX_HEIGHT_UNITS / 2),
            arrowprops={
                "arrowstyle": "-" if is_mutual else "-|>",
                "connectionstyle": f"arc3,rad={-0.4 if source_gpu < target_gpu else 0.4}",
                "color": colour(DIRECT_LINK_COLOUR),
                "linewidth": self._choose_line_width(True),
            },
        )


def _draw_line(ax: Axes, gpu: int, bottom_y: float, top_y: float, colour_name: str, width: float) -> None:
    ax.plot([gpu, gpu], [bottom_y, top_y], color=colour(colour_name), linewidth=width, solid_capstyle="butt")


def _draw_box(ax: Axes, first_gpu: int, last_gpu: int, y: float, text: str, colour_name: str) -> None:
    """Draw a box that spans several GPUs, with its text."""
    box = FancyBboxPatch(
        (first_gpu - 0.36, y - BOX_HEIGHT_UNITS / 2),
        last_gpu - first_gpu + 0.72,
        BOX_HEIGHT_UNITS,
        boxstyle="round,pad=0,rounding_size=0.06",
        facecolor=colour(colour_name),
        edgecolor=colour("muted" if colour_name == "panel" else colour_name),
        zorder=3,
    )
    ax.add_patch(box)
    ax.text(
        (first_gpu + last_gpu) / 2,
        y,
        text,
        ha="center",
        va="center",
        color=colour(choose_ink(colour_name)),
        zorder=4,
    )
