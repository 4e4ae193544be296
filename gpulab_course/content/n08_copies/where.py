"""A map of host memory, the bus and device memory, which highlights the paths of a timeline's copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import traitlets

from gpulab import session
from gpulab.lab.timeline import TimelineReport
from gpulab.views._base import View
from gpulab.views.parts.boxes import Box, column, switch, words
from gpulab.views.parts.items import Item, Labels, LineSegments, Rects
from gpulab.views.parts.plots import make_sentence_args, plot
from gpulab.words import duration, number, size
from virtualgpu.records import Activity, HostCall, Provenance

TransferWay = Literal["pageable", "pinned", "zero-copy", "managed", "prefetch", "at home", "peer"]
_KERNEL_ACTIVITY = "CONCURRENT_KERNEL"
_HOST_MEMORY = 1
_MANAGED_MEMORY = 3
_BUS_GBPS = 64.0  # what PCIe 5.0 x16 carries in one direction: faster than that is not over it
_COPY_CALL_US = 50  # a call that takes longer than this has waited


@dataclass(frozen=True, slots=True)
class DataTransfer:
    """A transfer of bytes in a timeline, with its path, size and time, and the source line that started it.

    The attribute ``text`` is the line of the program, and ``call_ns`` is the duration of its call, or 0 if
    the duration is not known. ``is_copy`` is true for a copy and false for a kernel that reads the bytes.
    """

    way: TransferWay
    to_host: bool
    size_bytes: int
    time_ns: int
    text: str = ""
    call_ns: int = 0
    is_copy: bool = False

    @property
    def is_kernel_read(self) -> bool:
        """Whether the bytes were read by a kernel, and not moved by a copy. For such a read, the rate
        excludes the bytes that the kernel wrote.
        """
        return self.way in ("zero-copy", "managed", "at home") and not self.is_copy

    @property
    def gbps(self) -> float:
        return self.size_bytes / max(self.time_ns, 1)

    @property
    def host_waited(self) -> bool:
        """Whether the host waited for the copy. The host waited if the call took more than 50 µs and more
        than half of the copy's time.
        """
        return self.call_ns > max(self.time_ns / 2, _COPY_CALL_US * 1e3)


class MapBox:
    """A box that represents a memory or the bus on the map of transfers."""

    def __init__(self, text: str, x: float, y: float, width: float = 17, height: float = 36) -> None:
        self.text = text
        self.x = x
        self.y = y
        self.width = width
        self.height = height

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


_MAP_BOXES = {
    "pageable": MapBox("pageable memory", 2, 34),
    "staging": MapBox("driver's buffer", 27, 34),
    "pinned": MapBox("pinned memory", 2, 84),
    "managed": MapBox("managed pages", 2, 134),
    "engine": MapBox("copy engine", 60, 59, 15),
    "sms": MapBox("SMs", 60, 134, 15),
    "memory": MapBox("device memory", 83, 94, 15),
    "peer": MapBox("another GPU", 83, 34, 15),
}
# The arrows of each path, from place to place towards the device.
_ARROWS_OF_WAY: dict[TransferWay, tuple[tuple[str, str], ...]] = {
    "pageable": (("pageable", "staging"), ("staging", "engine"), ("engine", "memory")),
    "pinned": (("pinned", "engine"), ("engine", "memory")),
    "zero-copy": (("pinned", "sms"),),
    "managed": (("managed", "engine"), ("engine", "memory"), ("memory", "sms")),
    "prefetch": (("managed", "engine"), ("engine", "memory")),
    "at home": (("memory", "sms"),),
    "peer": (("memory", "engine"), ("engine", "peer")),
}
_TEXT_OF_WAY: dict[TransferWay, str] = {
    "pageable": "A core of the CPU copies the data piece by piece into a pinned buffer of the driver, and "
    "the copy engine reads each piece from there.",
    "pinned": "The copy engine moves the data by itself, at the rate of the bus, without a core of the CPU.",
    "zero-copy": "There is no copy: the kernel's loads and stores cross the bus every time.",
    "managed": "Each missing page causes a fault: the driver moves the page while the kernel waits.",
    "prefetch": "The driver moves the pages in advance, in large pieces and without faults.",
    "at home": "All data was in device memory; nothing crossed the bus.",
    "peer": "From the memory of one GPU to the memory of another GPU, without the host.",
}


class TransferMap(View):
    """A map that highlights the path of the selected transfer, above a bar chart of the rates of all
    transfers.
    """

    chosen = traitlets.Int().tag(sync=True, echo_update=False)

    def __init__(self, transfers: Sequence[DataTransfer], provenance: Provenance) -> None:
        if not transfers:
            raise ValueError(
                "Nothing was copied while this timeline was recorded. Put copies into the timeline's `with` "
                "block."
            )
        self.transfers = tuple(transfers)
        self.provenance = provenance
        super().__init__(
            title="Where does the copy go?",
            caption=f"Times and rates {provenance.label}. A rate counts the bytes that were copied or that "
            "a kernel read, but not those that it wrote. The map is a sketch.",
            source=provenance.source,
            chosen=0,
        )
        self.redraw()

    @property
    def record(self) -> tuple[DataTransfer, ...]:
        return self.transfers

    def sentence(self) -> str:
        rates = "; ".join(
            f"{_make_transfer_name(transfer)} {_format_rate(transfer)}" for transfer in self.transfers
        )
        return f"Where copies go: {rates}; {self.provenance.label}."

    def describe(self) -> str:
        return "\n".join(
            [
                self.sentence(),
                *(
                    f"{_describe_transfer(transfer)} {_TEXT_OF_WAY[transfer.way]}"
                    for transfer in self.transfers
                ),
            ]
        )

    def draw(self) -> Box:
        transfer_details = {
            transfer_index: column(
                _draw_map(transfer),
                words(_describe_transfer(transfer), "strong"),
                words(_TEXT_OF_WAY[transfer.way], "note"),
            )
            for transfer_index, transfer in enumerate(self.transfers)
        }
        return column(
            switch("chosen", self.chosen, transfer_details),
            self._draw_rates(),
            words("Click a bar, or focus the chart and use the arrow keys.", "note", only="page"),
        )

    def _draw_rates(self) -> Box:
        transfers = self.transfers
        transfer_count = len(self.transfers)
        chart_top = 34
        chart_height_px = 76
        transfer_indices = [*range(transfer_count)]
        chart_bottom = chart_top + chart_height_px
        # Transfers within the device are so much faster that their bar is cut.
        max_gbps = max(
            [transfer.gbps for transfer in transfers if transfer.way != "at home"]
            or [transfer.gbps for transfer in transfers]
        )
        bar_shares = [min(max(transfer.gbps / max_gbps, 0.01), 1.25) / 1.25 for transfer in transfers]
        bar_tops = [chart_bottom - chart_height_px * bar_share for bar_share in bar_shares]
        bar_middles = [transfer_index + 0.5 for transfer_index in transfer_indices]
        rates = [
            f"{_format_rate(transfer)}{' (cut)' if transfer.gbps > 1.25 * max_gbps else ''}"
            for transfer in transfers
        ]
        transfer_names = [_make_transfer_name(transfer) for transfer in transfers]
        size_texts = [size(transfer.size_bytes) for transfer in transfers]
        label_widths = [1.0] * transfer_count
        colour_indices = [int(transfer.way == "at home") for transfer in transfers]
        return plot(
            chart_bottom + 36,
            (0.0, float(max(transfer_count, 4))),
            Rects(
                transfer_indices,
                [transfer_index + 1 for transfer_index in transfer_indices],
                bar_tops,
                [chart_bottom] * transfer_count,
                colour_indices,
                ("accent", "other"),
                inset=14,
                **make_sentence_args([_describe_transfer(transfer) for transfer in transfers]),
            ),
            Labels(bar_middles, [y - 9 for y in bar_tops], rates, anchor="middle", weight="bold"),
            Labels(
                bar_middles,
                [chart_bottom + 12] * transfer_count,
                transfer_names,
                anchor="middle",
                room=label_widths,
            ),
            Labels(
                bar_middles,
                [chart_bottom + 27] * transfer_count,
                size_texts,
                anchor="middle",
                colour="muted",
                room=label_widths,
            ),
            label="Rate of each",
            trait="chosen",
            values=transfer_indices,
            marks=[""] * transfer_count,
            mark_y=8,
            chosen=self.chosen,
        )


def _draw_map(transfer: DataTransfer) -> Box:
    arrows = _ARROWS_OF_WAY[transfer.way]
    used_names = {name for place_pair in arrows for name in place_pair}
    unused_pairs = dict.fromkeys(
        place_pair
        for route_arrows in _ARROWS_OF_WAY.values()
        for place_pair in route_arrows
        if not {place_pair, place_pair[::-1]} & {*arrows}
    )
    used_places = [place for name, place in _MAP_BOXES.items() if name in used_names]
    unused_places = [place for name, place in _MAP_BOXES.items() if name not in used_names]
    route = " to ".join(dict.fromkeys(_MAP_BOXES[name].text for place_pair in arrows for name in place_pair))
    return plot(
        184,
        (0.0, 100.0),
        Rects([0, 55], [46, 100], [4, 4], [180, 180], "panel"),
        Labels([1, 56], [17, 17], ["host", "device"], colour="muted"),
        Labels([50.5], [17], ["PCIe"], anchor="middle", colour="muted"),
        LineSegments([50.5], [28], [50.5], [178], "other", dash=True),
        _make_map_arrows([*unused_pairs], False, "other", 1),
        _make_map_boxes(unused_places, "grid"),
        _make_map_arrows(arrows, transfer.to_host, "tail", 3),
        _make_map_boxes(used_places, "accent"),
        _make_map_labels(unused_places, "fg", "normal"),
        _make_map_labels(used_places, "on-accent", "bold"),
        label=f"{_make_transfer_name(transfer)}: {route}",
    )


def _make_map_boxes(places: Sequence[MapBox], colour: str) -> Item:
    left_edges = [map_box.x for map_box in places]
    right_edges = [map_box.right for map_box in places]
    return Rects(
        left_edges,
        right_edges,
        [map_box.y for map_box in places],
        [map_box.y + map_box.height for map_box in places],
        colour,
    )


def _make_map_labels(places: Sequence[MapBox], colour: str, font_weight: str) -> Item:
    box_middles = [map_box.x + map_box.width / 2 for map_box in places]
    place_texts = [map_box.text for map_box in places]
    return Labels(
        box_middles,
        [map_box.middle for map_box in places],
        place_texts,
        anchor="middle",
        colour=colour,
        weight=font_weight,
    )


def _make_map_arrows(
    place_pairs: Sequence[tuple[str, str]], is_reversed: bool, colour: str, width: float
) -> Item:
    line_ends = [
        _find_connecting_line(_MAP_BOXES[from_name], _MAP_BOXES[to_name])
        for from_name, to_name in place_pairs
    ]
    if is_reversed:
        line_ends = [(x1, y1, x0, y0) for x0, y0, x1, y1 in line_ends]
    x0, y0, x1, y1 = (
        [endpoints[coordinate_index] for endpoints in line_ends] for coordinate_index in range(4)
    )
    return LineSegments(x0, y0, x1, y1, colour, width=width, arrow=True)


def _find_connecting_line(from_box: MapBox, to_box: MapBox) -> tuple[float, float, float, float]:
    """Return the end points of a line that connects the facing sides of two boxes."""
    if from_box.right <= to_box.x:
        return from_box.right, from_box.middle, to_box.x, to_box.middle
    return from_box.x, from_box.middle, to_box.right, to_box.middle


def _make_transfer_name(transfer: DataTransfer) -> str:
    if transfer.way == "at home":
        return "device memory"
    if transfer.way in ("zero-copy", "managed"):
        return transfer.way
    if transfer.way == "peer":
        return "GPU to GPU"
    return f"{transfer.way} to {'host' if transfer.to_host else 'device'}"


def _format_rate(transfer: DataTransfer) -> str:
    return f"{number(transfer.gbps)} GB/s{' read' if transfer.is_kernel_read else ''}"


def _describe_transfer(transfer: DataTransfer) -> str:
    source_prefix = f"{transfer.text}: " if transfer.text else ""
    wait_text = ""
    if transfer.call_ns and transfer.way in ("pageable", "pinned"):
        wait_text = (
            " The host waited until it was done." if transfer.host_waited else " The host continued at once."
        )
    summary = f"{size(transfer.size_bytes)} in {duration(transfer.time_ns)}, {_format_rate(transfer)}"
    return f"{source_prefix}{_make_transfer_name(transfer)}, {summary}.{wait_text}"


def where(timeline: TimelineReport, reads: Sequence[Any] = ()) -> TransferMap:
    """Return a map of the paths of a timeline's copies, and of the bytes that its kernels read.

    Parameters
    ----------
    timeline
        The report of ``gl.timeline()``.
    reads
        The array that each kernel of the timeline reads, in order. Kernels without an array are left out.
    """
    record = timeline.record
    calls_by_id = {
        host_call.correlation_id: host_call for host_call in record.calls if host_call.correlation_id
    }
    arrays = iter(reads)
    transfers = []
    for activity in sorted(record.activities, key=lambda activity: activity.correlation_id):
        host_call = calls_by_id.get(activity.correlation_id)
        if activity.kind == _KERNEL_ACTIVITY:
            array = next(arrays, None)
            if array is not None:
                transfers.append(_make_kernel_transfer(activity, host_call, array))
        elif activity.copy_kind is not None:
            transfers.append(_make_copy_transfer(activity, host_call))
    return TransferMap(transfers, record.provenance)


def _make_copy_transfer(activity: Activity, host_call: HostCall | None) -> DataTransfer:
    way_of_copy_kind: dict[Any, TransferWay] = {"DtoD": "at home", "PtoP": "peer"}
    way: TransferWay = way_of_copy_kind.get(activity.copy_kind) or (
        "pinned" if activity.pinned else "pageable"
    )
    if activity.name.startswith("Memprefetch"):
        way = "prefetch"
    return _make_transfer(way, activity, host_call, activity.size_bytes)


def _make_kernel_transfer(activity: Activity, host_call: HostCall | None, array: Any) -> DataTransfer:
    memory_kind = session.cp().cuda.runtime.pointerGetAttributes(array.data.ptr).type
    way_of_memory_kind: dict[int, TransferWay] = {_HOST_MEMORY: "zero-copy", _MANAGED_MEMORY: "managed"}
    way = way_of_memory_kind.get(memory_kind, "at home")
    if array.nbytes / max(activity.duration_ns, 1) > _BUS_GBPS:
        way = "at home"  # no bus carries that: the pages were there
    return _make_transfer(way, activity, host_call, int(array.nbytes))


def _make_transfer(
    way: TransferWay, activity: Activity, host_call: HostCall | None, size_bytes: int
) -> DataTransfer:
    source_line = (
        host_call.source.text.strip() if host_call is not None and host_call.source is not None else ""
    )
    call_ns = host_call.end_ns - host_call.start_ns if host_call is not None else 0
    return DataTransfer(
        way,
        activity.copy_kind == "DtoH",
        size_bytes,
        activity.duration_ns,
        source_line[:60],
        call_ns,
        is_copy=activity.kind != _KERNEL_ACTIVITY,
    )
