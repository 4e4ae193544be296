"""Measurements, programs and pictures of notebook 10."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gpulab import session
from gpulab.session.pools.hook import ALLOC, FREE_COMPLETED
from gpulab.views.parts.palette import find_hex
from gpulab.views.tables import Table
from gpulab_course.content import story
from gpulab_course.teach.drawing import draw_box, draw_text, make_empty_axes
from gpulab_course.teach.picture import Picture
from virtualgpu.records.memory.events import AllocatorTrace

MIB = 1 << 20
_FONT_SIZE = 10


def read_device_used_bytes() -> int:
    """Return the device memory in use by all processes, in bytes, from ``cudaMemGetInfo``."""
    free_bytes, total_bytes = session.cp().cuda.runtime.memGetInfo()
    return int(total_bytes - free_bytes)


def levels() -> dict[str, int]:
    """Return the bytes that arrays use, that the default pool reserves, and that the device uses."""
    pool = session.cp().get_default_memory_pool()
    return {"used": pool.used_bytes(), "reserved": pool.total_bytes(), "device": read_device_used_bytes()}


def in_a_thread(function: Callable[[], Any]) -> Any:
    """Run a function in another thread, and return its result."""
    thread_results: list[Any] = []
    thread = threading.Thread(target=lambda: thread_results.append(function()))
    thread.start()
    thread.join()
    return thread_results[0] if thread_results else None


def with_settings(trace: Any, *variants: dict[str, Any]) -> str:
    """Return a table of the memory that PyTorch's allocator reserves for a trace under several settings."""
    settings_rows = []
    for settings in ({}, *variants):
        statistics = trace.replayed("PyTorch", **settings).statistics().nested()
        settings_rows.append(
            (
                ", ".join(f"{option_name}:{option_value}" for option_name, option_value in settings.items())
                or "defaults",
                f"{statistics['reserved_bytes']['all']['peak'] // MIB:,} MiB",
                str(statistics["num_device_alloc"]),
                str(statistics["num_device_free"]),
            )
        )
    headings = ("PYTORCH_CUDA_ALLOC_CONF", "reserved, peak", "calls that allocate", "calls that free")
    return Table(
        "The same requests in the model of PyTorch's allocator", headings, tuple(settings_rows)
    ).text()


def tokens(n: int, d: int = 32) -> Any:
    """Return the normalized input (n, d) of the running example as a device array."""
    return session.cp().asarray(story.reference(story.attention.tokens(n, d))["normed"])


def attention(h: Any) -> Any:
    """Compute attention in simple steps, each of which allocates an array of n x n elements."""
    cp = session.cp()
    scores = h @ h.T * np.float32(h.shape[1] ** -0.5)
    powers = cp.exp(scores - scores.max(axis=1, keepdims=True))
    weights = powers / powers.sum(axis=1, keepdims=True)
    return weights @ h


# --- pictures -------------------------------------------------------------------------------------------
def nested(level_bytes: Mapping[str, int]) -> Picture:
    """Draw the used memory inside the reserved memory, and the reserved memory inside the device memory.

    Parameters
    ----------
    level_bytes
        The bytes of the levels "used", "reserved" and "device".
    """
    used_mib, reserved_mib, device_mib = (
        level_bytes[level] / MIB for level in ("used", "reserved", "device")
    )
    figure, axes = make_empty_axes(2.7, (0, 100), (0, 36))
    draw_box(axes, 1, 1, 98, 34, "grid")
    draw_box(axes, 3, 8, 56, 25, "accent-2")
    draw_box(axes, 5, 16, 22, 14, "accent")
    box_labels = (
        (3, 4.5, f"device: {device_mib:,.0f} MiB in use", "left", "fg"),
        (5, 12, f"reserved by the pool: {reserved_mib:,.0f} MiB", "left", "on-accent-2"),
        (16, 23, f"used by arrays:\n{used_mib:,.0f} MiB", "center", "on-accent"),
        (43, 23, f"free in the pool:\n{reserved_mib - used_mib:,.0f} MiB", "center", "on-accent-2"),
        (79, 21, f"CUDA, libraries,\nother processes:\n{device_mib - reserved_mib:,.0f} MiB", "center", "fg"),
    )
    for x, y, box_label, text_alignment, colour in box_labels:
        draw_text(axes, x, y, box_label, colour, ha=text_alignment)
    return Picture.of(
        figure,
        f"Three boxes inside each other, not to scale: {used_mib:,.0f} MiB are used by arrays, within "
        f"{reserved_mib:,.0f} MiB that the pool has reserved, within {device_mib:,.0f} MiB in use on the "
        f"device. The other {device_mib - reserved_mib:,.0f} MiB of the device belong to CUDA, libraries "
        "and other processes.",
    )


def reused(doubled_address: int, z_address: int) -> Picture:
    """Draw a data race between two streams on memory that the host freed too early.

    Parameters
    ----------
    doubled_address, z_address
        The addresses of two arrays of the default stream, which are equal if the memory was reused.
    """
    is_race = doubled_address == z_address
    figure, axes = make_empty_axes(3.2, (0, 100), (0, 44))
    row_y_by_name = {"host": 3, "default stream": 15, "side stream": 27}
    for row_label, y in row_y_by_name.items():
        draw_text(axes, 15, y + 4, row_label, ha="right")
        axes.plot([17, 99], [y + 9.5, y + 9.5], color=find_hex("rule"), linewidth=1)
    second_colour = "tail" if is_race else "accent-2"
    operation_boxes = (
        ("host", 17, 14, "doubled\n= x * 2", "grid"),
        ("host", 32, 18, "y = doubled\n+ 20", "grid"),
        ("host", 51, 14, "del\ndoubled", "grid"),
        ("host", 66, 14, "z = x * 3", "grid"),
        ("default stream", 24, 20, "x * 2 writes\ndoubled", "accent-2"),
        ("default stream", 72, 20, "x * 3\nwrites z", second_colour),
        ("side stream", 46, 50, "doubled + 20 reads doubled", second_colour),
    )
    for row_name, x, box_width, operation_text, colour in operation_boxes:
        draw_box(axes, x, row_y_by_name[row_name], box_width, 8, colour, operation_text, fontsize=9)
    result_text = "the same memory at the same time" if is_race else "different memory"
    draw_text(axes, 58, 40.5, f"orange: {result_text}" if is_race else result_text, ha="center")
    draw_text(axes, 17, 40.5, "time →", "muted")
    return Picture.of(
        figure,
        "The host calls x * 2, doubled + 20, del doubled and x * 3 in this order. On the device, x * 3 of "
        "the default stream can run while doubled + 20 of the side stream still reads doubled. "
        + (
            f"Both use the memory at {z_address:#x}: a race."
            if is_race
            else "They use different memory, so there is no race."
        ),
    )


def lifetimes(trace: AllocatorTrace, names: Sequence[str], least_bytes: int = 64 << 10) -> Picture:
    """Draw the lifetime of each large array in a trace as a bar, and the total size of all live arrays.

    Parameters
    ----------
    trace
        The requests of a program to its pool.
    names
        The names of the arrays of at least `least_bytes`, in the order of their allocation.
    least_bytes
        The smallest size of an array that is drawn, in bytes.
    """
    events = trace.events
    event_indices = np.flatnonzero(
        (events.size_bytes >= least_bytes) & np.isin(events.actions, (ALLOC, FREE_COMPLETED))
    )
    bar_of_address: dict[int, int] = {}
    lifetime_bars: list[list[int]] = []  # start, end, bytes
    live_bytes = [0]
    for step, event_index in enumerate(event_indices):
        address, size_bytes = int(events.addresses[event_index]), int(events.size_bytes[event_index])
        is_new = events.actions[event_index] == ALLOC
        if is_new:
            bar_of_address[address] = len(lifetime_bars)
            lifetime_bars.append([step, len(event_indices), size_bytes])
        else:
            lifetime_bars[bar_of_address.pop(address)][1] = step
        live_bytes.append(live_bytes[-1] + (size_bytes if is_new else -size_bytes))
    peak_step = int(np.argmax(live_bytes)) - 1
    figure = Figure(figsize=(7.6, 4.4), dpi=100)
    lifetime_axes = figure.add_axes((0.16, 0.4, 0.82, 0.53))
    size_axes = figure.add_axes((0.16, 0.12, 0.82, 0.24), sharex=lifetime_axes)
    for bar_index, (start_step, end_step, size_bytes) in enumerate(lifetime_bars):
        colour = "tail" if start_step <= peak_step < end_step else "accent-2"
        lifetime_axes.add_patch(
            Rectangle((start_step, bar_index - 0.38), end_step - start_step, 0.76, facecolor=find_hex(colour))
        )
        label_text = f"{size_bytes / MIB:.3g} MiB"
        lifetime_axes.text(
            start_step + 0.1, bar_index, label_text, ha="left", va="center", fontsize=9, color="black"
        )
    lifetime_axes.set_yticks(range(len(lifetime_bars)), names, fontsize=_FONT_SIZE)
    lifetime_axes.set_ylim(len(lifetime_bars) - 0.5, -0.5)
    size_axes.stairs(
        [size_bytes / MIB for size_bytes in live_bytes[1:]],
        np.arange(len(live_bytes)),
        fill=True,
        color=find_hex("accent-2"),
    )
    size_axes.set_ylabel("MiB", fontsize=_FONT_SIZE)
    size_axes.set_ylim(0, 1.2 * max(live_bytes) / MIB)
    size_axes.text(
        peak_step + 0.5, 1.02 * max(live_bytes) / MIB, "peak", ha="center", va="bottom", fontsize=_FONT_SIZE
    )
    size_axes.set_xlabel("allocations and frees, in the order of the program", fontsize=_FONT_SIZE)
    size_axes.set_xlim(0, len(event_indices))
    size_axes.set_xticks([])
    lifetime_axes.tick_params(labelbottom=False, bottom=False)
    for axes in (lifetime_axes, size_axes):
        axes.axvspan(peak_step, peak_step + 1, facecolor=find_hex("grid"), zorder=0)
        axes.spines[["top", "right"]].set_visible(False)
    event_stacks = events.stacks[event_indices]
    stack_starts = [0, *(np.flatnonzero(np.diff(event_stacks)) + 1), len(event_indices)]
    for line_number, (start_step, end_step) in enumerate(pairwise(stack_starts), 1):
        is_inside_call = len(trace.stacks[event_stacks[start_step]]) > len(trace.stacks[event_stacks[-1]])
        label_text = (
            f"line {line_number}" if is_inside_call else "return" if end_step < len(event_indices) else ""
        )
        lifetime_axes.text(
            (start_step + end_step) / 2, -0.7, label_text, ha="center", va="bottom", fontsize=_FONT_SIZE
        )
        if start_step:
            lifetime_axes.axvline(start_step, color=find_hex("muted"), linestyle=":", linewidth=1)
    peak_names = [
        name
        for name, (start_step, end_step, _) in zip(names, lifetime_bars, strict=True)
        if start_step <= peak_step < end_step
    ]
    return Picture.of(
        figure,
        f"The life of each array over the allocations and frees of a program, {trace.provenance.label}. At "
        f"the peak of {max(live_bytes) / MIB:.3g} MiB these are alive (orange): {', '.join(peak_names)}.",
    )


def kept_outputs(layers: int, every: int) -> Picture:
    """Draw which layer outputs stay in GPU memory with three strategies: keep all, recompute, and offload.

    Parameters
    ----------
    layers
        The number of layers.
    every
        The number of layers from one checkpoint to the next.
    """
    figure, axes = make_empty_axes(2.8, (0, 100), (0, 40))
    kept_columns = {
        "keep": range(layers + 1),
        "recompute": range(0, layers, every),
        "offload": range(1),
    }
    column_width = 80 / (layers + 1)
    for column in range(layers + 1):
        output_name = f"output {column}" if column else "input x"
        draw_text(axes, 19 + (column + 0.45) * column_width, 3, output_name, ha="center", fontsize=9)
    for program_index, (program, columns) in enumerate(kept_columns.items()):
        y = 6 + 9 * program_index
        draw_text(axes, 17, y + 3.5, program, ha="right")
        for column in range(layers + 1):
            x = 19 + column * column_width
            if column in columns:
                draw_box(axes, x, y, 0.9 * column_width, 7, "accent")
            elif program == "offload":
                draw_box(axes, x, y, 0.9 * column_width, 7, "warn")
            else:
                draw_box(axes, x, y, 0.9 * column_width, 7, "bg", hatch="///", edge_colour="muted")
    legend = (
        ("kept on the device", "accent", ""),
        ("computed when needed", "bg", "///"),
        ("on the host", "warn", ""),
    )
    for legend_index, (legend_text, colour, hatch) in enumerate(legend):
        x = 19 + (0, 26, 58)[legend_index]
        draw_box(axes, x, 35, 3, 3, colour, hatch=hatch)
        draw_text(axes, x + 4, 36.5, legend_text)
    checkpoints_text = ", ".join(
        str(output_number) for output_number in kept_columns["recompute"] if output_number
    )
    return Picture.of(
        figure,
        f"The input and the outputs of {layers} layers. keep has all of them on the device until the end. "
        f"recompute keeps the input and output {checkpoints_text}, and computes the others when they are "
        "needed. offload has the outputs on the host.",
    )
