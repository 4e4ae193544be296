"""Pictures of notebook 11: launches and kernels, the break-even of a graph, and memory that graphs use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from gpulab.views.parts.palette import find_hex
from gpulab_course.content.n11_graphs.figures import BreakEven
from gpulab_course.teach.drawing import WIDTH_IN, draw_arrow, draw_box, draw_text, make_empty_axes
from gpulab_course.teach.picture import Picture
from virtualgpu.records import GraphArray, GraphNode, GraphRecord, Provenance

StartAndEndTimes = tuple[float, float]


# When launches and kernels run


def compute_launch_times(
    count: int, launch_us: float, kernel_us: float
) -> tuple[list[StartAndEndTimes], list[StartAndEndTimes]]:
    """Return the start and end times in µs of all launches, and of all kernels.

    The host launches kernels without pauses. A kernel starts when its launch and the previous kernel have
    ended.
    """
    launch_spans_us = [
        (launch_index * launch_us, (launch_index + 1) * launch_us) for launch_index in range(count)
    ]
    kernel_spans_us: list[StartAndEndTimes] = []
    for _, launch_end_us in launch_spans_us:
        kernel_start_us = max(launch_end_us, kernel_spans_us[-1][1] if kernel_spans_us else 0.0)
        kernel_spans_us.append((kernel_start_us, kernel_start_us + kernel_us))
    return launch_spans_us, kernel_spans_us


def launches_and_kernels(launch_us: float, *kernels_us: float, count: int = 4) -> Picture:
    """Draw launches and kernels on a time axis, with one panel for each kernel duration."""
    end_us = max(compute_launch_times(count, launch_us, kernel_us)[1][-1][1] for kernel_us in kernels_us)
    figure = Figure(figsize=(WIDTH_IN, 1.75 * len(kernels_us) + 0.45), dpi=100)
    captions = []
    panel_height = 1 / (len(kernels_us) + 0.25)
    for panel_index, kernel_us in enumerate(kernels_us):
        axes = figure.add_axes(
            (0.01, 1 - (panel_index + 1) * panel_height + 0.005, 0.98, 0.93 * panel_height)
        )
        axes.set_xlim(-0.13 * end_us, 1.02 * end_us)
        axes.set_ylim(3.1, 0)
        axes.set_axis_off()
        launch_spans_us, kernel_spans_us = compute_launch_times(count, launch_us, kernel_us)
        spacing_us = kernel_spans_us[-1][0] - kernel_spans_us[-2][0]
        gap_us = kernel_spans_us[-1][0] - kernel_spans_us[-2][1]
        gap_text = f"a gap of {gap_us:g} µs before each kernel" if gap_us else "no gaps"
        heading = f"Kernels of {kernel_us:g} µs start {spacing_us:g} µs apart: {gap_text}"
        draw_text(axes, -0.13 * end_us, 0.4, heading, weight="bold")
        for line_index, (line_name, operation_spans_us, colour_name) in enumerate(
            (("host", launch_spans_us, "warn"), ("stream", kernel_spans_us, "accent"))
        ):
            draw_text(axes, -0.02 * end_us, 1.35 + line_index, line_name, ha="right")
            for operation_number, (start_us, span_end_us) in enumerate(operation_spans_us, 1):
                is_wide = span_end_us - start_us > 0.05 * end_us
                label = (
                    str(operation_number)
                    if not is_wide
                    else f"{'launch' if colour_name == 'warn' else 'kernel'} {operation_number}"
                )
                draw_box(
                    axes,
                    start_us,
                    1 + line_index,
                    span_end_us - start_us,
                    0.7,
                    colour_name,
                    label if is_wide else "",
                )
                if not is_wide:
                    draw_text(axes, span_end_us + 0.006 * end_us, 1.35 + line_index, label)
        captions.append(f"{heading}.")
    time_axis = figure.add_axes((0.01, 0.25 * panel_height, 0.98, 0.001))
    time_axis.set_xlim(-0.13 * end_us, 1.02 * end_us)
    ticks_us = range(0, int(end_us) + 1, 6 if end_us < 60 else 20)
    time_axis.set_xticks([*ticks_us], [f"{tick_us} µs" for tick_us in ticks_us], fontsize=9)
    time_axis.set_yticks([])
    time_axis.spines[["left", "right", "top"]].set_visible(False)
    return Picture.of(
        figure, f"{count} launches of {launch_us:g} µs and their kernels. " + " ".join(captions)
    )


# What a graph costs and saves


def break_even_lines(graph_costs: BreakEven, work: str, origin: Provenance) -> Picture:
    """Draw the host's total time with and without a graph against the number of launches.

    Parameters
    ----------
    graph_costs
        The costs of the graph and of its work.
    work
        The work of one launch, such as ``"forty launches"``.
    origin
        The provenance of the times.
    """
    creation_us = graph_costs.capture_us + graph_costs.end_us
    launch_counts = range(max(4, graph_costs.launches + 2) + 1)
    figure = Figure(figsize=(WIDTH_IN, 3.2), dpi=100)
    axes = figure.add_axes((0.1, 0.16, 0.87, 0.74))
    eager_us = [launch_count * graph_costs.eager_us for launch_count in launch_counts]
    graph_us = [creation_us + launch_count * graph_costs.launch_us for launch_count in launch_counts]
    axes.plot(launch_counts, eager_us, color=find_hex("warn"), marker="s", label=f"{work}, each time")
    axes.plot(
        launch_counts,
        graph_us,
        color=find_hex("accent"),
        marker="o",
        label="make the graph, then launch it",
    )
    axes.set_xticks([*launch_counts])
    axes.set_xlabel("how often the work runs")
    axes.set_ylabel("host time in µs")
    axes.set_ylim(0, 1.05 * max(eager_us[-1], graph_us[-1]))
    axes.set_title(origin.label, fontsize=10, color=find_hex("muted"))
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, loc="upper left")
    break_even_text = (
        f"the graph takes less host time from launch number {graph_costs.launches} on"
        if graph_costs.launches
        else "the graph never takes less host time"
    )
    return Picture.of(
        figure,
        f"Host time, {origin.label}: {graph_costs.eager_us:,.0f} µs per run without a graph; "
        f"{creation_us:,.0f} µs "
        f"to make the graph and {graph_costs.launch_us:,.1f} µs per launch: {break_even_text}.",
    )


# The memory that graphs use


def _shorten_address(address: int) -> str:
    return f"0x…{address & 0xFFFFF:05x}"


def _find_node_name(node: GraphNode) -> str:
    """Return the CuPy operation of a node, such as ``multiply``."""
    return node.name.split("__")[0].removeprefix("cupy_")


def _find_input_array(record: GraphRecord) -> GraphArray:
    """Return the first array that a graph reads but does not write."""
    return next(array for array in record.arrays if not array.is_output)


def _make_reading_text(record: GraphRecord) -> str:
    """Return text with the first node that reads the graph's input, and the address of the input."""
    array = _find_input_array(record)
    node_name = _find_node_name(record.nodes[record.users(array)[0]])
    return f"node {node_name}\nreads {_shorten_address(array.address)}"


def static_buffer(
    reassigned_graph: GraphRecord, buffered_graph: GraphRecord, batches: Sequence[Any]
) -> Picture:
    """Draw which memory a captured graph reads if a variable is reassigned, and if a static buffer is used.

    Parameters
    ----------
    reassigned_graph
        A graph that was captured with the first batch.
    buffered_graph
        A graph that was captured with a static buffer.
    batches
        The two batches.
    """
    first_address, second_address = (int(batch_array.data.ptr) for batch_array in batches)
    read_address, buffer_address = (
        _find_input_array(reassigned_graph).address,
        _find_input_array(buffered_graph).address,
    )
    reads_old_batch = read_address == first_address
    node_x = 2.4 if reads_old_batch else 7.2
    figure, axes = make_empty_axes(3.6, (0, 20), (0, 9.2))
    draw_text(axes, 0.2, 0.5, "batch = batches[1]: the name moves", weight="bold")
    draw_box(axes, 3.0, 1.3, 3.6, 1.1, "highlight", "name batch")
    draw_box(axes, 0.4, 4.1, 4.0, 1.5, "accent", f"batches[0]\n{_shorten_address(first_address)}")
    draw_box(axes, 5.2, 4.1, 4.0, 1.5, "warn", f"batches[1]\n{_shorten_address(second_address)}")
    draw_box(axes, 0.4, 7.4, 8.8, 1.5, "panel", _make_reading_text(reassigned_graph))
    draw_arrow(axes, (4.0, 2.4), (2.6, 4.1), "muted", linestyle="--")
    draw_text(axes, 2.9, 3.0, "before", ha="right", colour="muted")
    draw_arrow(axes, (5.6, 2.4), (7.0, 4.1))
    draw_text(axes, 6.9, 3.0, "now")
    draw_arrow(axes, (node_x, 7.4), (node_x, 5.6))
    draw_text(axes, node_x + 0.3, 6.5, "still the old batch" if reads_old_batch else "the new batch")
    axes.plot((10, 10), (0.3, 8.9), color=find_hex("rule"), linewidth=1)
    draw_text(axes, 10.6, 0.5, "x[...] = batches[1]: the data moves", weight="bold")
    draw_box(axes, 10.8, 1.3, 4.0, 1.5, "accent", f"batches[0]\n{_shorten_address(first_address)}")
    draw_box(axes, 15.6, 1.3, 4.0, 1.5, "warn", f"batches[1]\n{_shorten_address(second_address)}")
    draw_box(axes, 13.0, 4.4, 4.4, 1.5, "good", f"static buffer x\n{_shorten_address(buffer_address)}")
    draw_box(axes, 10.8, 7.4, 8.8, 1.5, "panel", _make_reading_text(buffered_graph))
    draw_arrow(axes, (12.8, 2.8), (14.2, 4.4), "muted", linestyle="--")
    draw_text(axes, 13.0, 3.7, "before", ha="right", colour="muted")
    draw_arrow(axes, (17.6, 2.8), (16.2, 4.4))
    draw_text(axes, 17.4, 3.7, "copy")
    draw_arrow(axes, (15.2, 7.4), (15.2, 5.9))
    draw_text(axes, 15.5, 6.65, "always this address")
    owner_text = "of the first batch" if reads_old_batch else "of another array"
    return Picture.of(
        figure,
        f"On the left, the name batch now refers to the second batch at {_shorten_address(second_address)}, "
        f"but the node still reads {_shorten_address(read_address)}, the address {owner_text}. On the right, "
        f"the second batch is copied into a static buffer at {_shorten_address(buffer_address)}, which the "
        "node reads.",
    )


def list_node_accesses(record: GraphRecord) -> list[tuple[str, int, int]]:
    """Return the name of each node in a linear graph, with the addresses that it reads and writes."""
    output_addresses = {array.address for array in record.arrays if array.is_output}
    current_address = next(array.address for array in record.arrays if array.address not in output_addresses)
    node_accesses = []
    for node in record.nodes:
        written_address = next(
            (address for address in node.addresses if address != current_address), current_address
        )
        node_accesses.append((_find_node_name(node), current_address, written_address))
        current_address = written_address
    return node_accesses


def blocks_of_pool(*records: GraphRecord) -> Picture:
    """Draw which blocks of a memory pool the nodes of several linear graphs write."""
    accesses_of_graphs = [list_node_accesses(record) for record in records]
    addresses = list(
        dict.fromkeys(
            write_address for graph_accesses in accesses_of_graphs for _, _, write_address in graph_accesses
        )
    )
    block_letters = {
        address: chr(ord("A") + address_index) for address_index, address in enumerate(addresses)
    }
    row_count = sum(map(len, accesses_of_graphs))
    left_x, block_width = 6.4, 13.4 / len(addresses)
    height_in = 0.36 * (row_count + len(accesses_of_graphs)) + 0.95
    figure, axes = make_empty_axes(
        height_in, (0, 20), (0, row_count + 0.55 * (len(accesses_of_graphs) - 1) + 1.65)
    )
    for address, block_letter in block_letters.items():
        box_middle_x = left_x + (addresses.index(address) + 0.5) * block_width
        draw_text(
            axes,
            box_middle_x,
            0.65,
            f"pool block {block_letter}\n{_shorten_address(address)}",
            ha="center",
            weight="bold",
        )
    y = 1.4
    captions = []
    for graph_number, (record, graph_accesses) in enumerate(zip(records, accesses_of_graphs, strict=True), 1):
        output_addresses = {array.address for array in record.arrays if array.is_output}
        colour_name = ("accent", "warn", "good")[(graph_number - 1) % 3]
        for node_index, (node_name, read_address, write_address) in enumerate(graph_accesses):
            draw_text(axes, 0.1, y + 0.45, f"graph {graph_number}: {node_name}")
            is_output = node_index == len(graph_accesses) - 1 and write_address in output_addresses
            for address in addresses:
                x = left_x + addresses.index(address) * block_width
                if address == write_address:
                    draw_box(
                        axes,
                        x,
                        y,
                        block_width,
                        0.9,
                        colour_name,
                        "writes its output" if is_output else "writes",
                    )
                else:
                    draw_box(axes, x, y, block_width, 0.9, "bg", "reads" if address == read_address else "")
            y += 1
        y += 0.55
        written_text = ", then ".join(
            f"pool block {block_letters[write_address]} ({node_name})"
            for node_name, _, write_address in graph_accesses
        )
        captions.append(f"Graph {graph_number} writes {written_text}, which is its output.")
    return Picture.of(figure, f"{len(addresses)} pool blocks. " + " ".join(captions))
