"""A figure of notebook 08: the location of the pages of managed memory while kernels read them."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gpulab.views.parts.palette import find_hex
from gpulab.words import duration, size
from gpulab_course.teach.picture import Picture
from virtualgpu.records import Provenance

_SQUARE_BYTES = 2 << 20
_HOST_MEMORY_X = 5.2
_DEVICE_MEMORY_X = 15.6
_MAX_SQUARES = 8


def page_migration(
    size_bytes: int, first_ns: float, second_ns: float, in_place_ns: float, origin: Provenance
) -> Picture:
    """Draw where the pages of managed and pinned arrays are while kernels read them.

    Parameters
    ----------
    size_bytes
        The size of the array.
    first_ns, second_ns
        The times of the first kernel, when all pages are on the host, and of a second run of the kernel.
    in_place_ns
        The time of a kernel that reads the same number of bytes from pinned memory.
    origin
        The provenance of the times.
    """
    square_count = max(1, min(_MAX_SQUARES, size_bytes // _SQUARE_BYTES))
    first_time_text, second_time_text, in_place_time_text = (
        duration(time_ns) for time_ns in (first_ns, second_ns, in_place_ns)
    )
    # The step and its time, where the pages are afterwards, and the label of an arrow.
    step_rows = (
        ("managed: host fills it", "", "host", ""),
        ("managed: first kernel", first_time_text, "device", "page faults"),
        ("managed: second kernel", second_time_text, "device", ""),
        ("pinned: any kernel", in_place_time_text, "host", "each read"),
    )
    figure = Figure(figsize=(7.6, 3.5), dpi=100)
    axes = figure.add_axes((0.01, 0.02, 0.98, 0.86))
    for step_index, (step_name, time_text, memory_side, arrow_label) in enumerate(step_rows):
        y = 1.5 * step_index
        axes.text(0, y + 0.3, step_name, fontsize=9, va="center", color=find_hex("fg"))
        axes.text(0, y + 0.75, time_text, fontsize=9, va="center", weight="bold", color=find_hex("fg"))
        for memory_name, x, colour in (
            ("host", _HOST_MEMORY_X, "warn"),
            ("device", _DEVICE_MEMORY_X, "good"),
        ):
            for square_index in range(square_count):
                is_here = memory_side == memory_name
                axes.add_patch(
                    Rectangle(
                        (x + 0.8 * square_index, y + 0.15),
                        0.7,
                        0.7,
                        facecolor=find_hex(colour) if is_here else "white",
                        edgecolor=find_hex(colour if is_here else "rule"),
                    )
                )
        if arrow_label:
            arrow_start, arrow_end = _HOST_MEMORY_X + 0.8 * square_count + 0.2, _DEVICE_MEMORY_X - 0.3
            arrow_style = {"arrowstyle": "-|>", "color": find_hex("tail"), "linewidth": 2}
            axes.annotate("", (arrow_end, y + 0.62), (arrow_start, y + 0.62), arrowprops=arrow_style)
            arrow_middle = (arrow_start + arrow_end) / 2
            axes.text(
                arrow_middle, y + 0.2, arrow_label, fontsize=9, ha="center", color=find_hex("tail-text")
            )
    half_width = 0.4 * square_count
    axes.text(
        _HOST_MEMORY_X + half_width,
        -0.3,
        "host memory",
        fontsize=9,
        ha="center",
        weight="bold",
        color=find_hex("fg"),
    )
    axes.text(
        _DEVICE_MEMORY_X + half_width,
        -0.3,
        "device memory",
        fontsize=9,
        ha="center",
        weight="bold",
        color=find_hex("fg"),
    )
    axes.set_xlim(0, _DEVICE_MEMORY_X + 0.8 * square_count + 0.1)
    axes.set_ylim(1.5 * len(step_rows) - 0.4, -0.8)
    axes.set_axis_off()
    figure.text(0.5, 0.93, origin.label, fontsize=10, ha="center", color=find_hex("muted"))
    return Picture.of(
        figure,
        f"Where the pages of an array of {size(size_bytes)} are, {origin.label}. Managed memory: after the "
        "host has filled it, all pages are in host memory. The first kernel causes page faults, which move "
        f"all pages to device memory, in {first_time_text}. The second kernel finds them there, in "
        f"{second_time_text}. Pinned memory: the pages stay in host memory, and each read of a kernel "
        f"crosses the bus, in {in_place_time_text}.",
    )
