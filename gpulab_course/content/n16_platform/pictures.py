"""Pictures of notebook 16: the GPUs that run a target, the layers below a call, and a bulk copy."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from gpulab.lab.libraries.follow import FollowReport
from gpulab.views.parts.palette import find_hex
from gpulab_course.content.n16_platform.exercises import GPUS, taken
from gpulab_course.teach.drawing import draw_arrow, draw_box, draw_text, make_empty_axes
from gpulab_course.teach.picture import Picture
from virtualgpu.records.libraries.layers import CallLayers

_LATER_CAPABILITY = (99, 0)
_LAYER_TEXTS = (
    ("framework", "Python and C++"),
    ("library", "cuBLAS, CUB, …"),
    ("CUDA runtime", "cuda…"),
    ("driver", "cu…"),
    ("device", "kernels, copies"),
)
_LAYER_COLOURS = ("accent", "purple", "warn", "other", "good")
_MAX_SHOWN_NAMES = 3


def reach(targets: Sequence[str]) -> Picture:
    """Draw the GPUs that can run each compilation target, directly or after the driver has compiled it."""
    figure = Figure(figsize=(7.6, 1.25 + 0.42 * len(targets)), dpi=100)
    axes = figure.add_axes((0.17, 0.16, 0.81, 0.6))
    later_x = len(GPUS) + 0.1
    axes.set_xlim(-0.5, later_x + 0.5)
    axes.set_ylim(len(targets) - 0.5, -0.5)
    captions = []
    for target_index, build_target in enumerate(targets):
        can_run = [bool(taken([build_target], capability)) for capability in GPUS.values()]
        colour = find_hex("good") if build_target.startswith("sm_") else find_hex("accent")
        marker = "s" if build_target.startswith("sm_") else "o"
        running_gpu_indices = [gpu_index for gpu_index, can_run_here in enumerate(can_run) if can_run_here]
        runs_on_later_gpus = bool(taken([build_target], _LATER_CAPABILITY))
        last_x = later_x if runs_on_later_gpus else running_gpu_indices[-1]
        arrow_style = "-|>" if runs_on_later_gpus else "-"
        axes.add_patch(
            FancyArrowPatch(
                (running_gpu_indices[0], target_index),
                (last_x + 0.3 * runs_on_later_gpus, target_index),
                arrowstyle=arrow_style,
                mutation_scale=14,
                color=colour,
                linewidth=2,
            )
        )
        for gpu_index, is_run in enumerate(can_run):
            if is_run:
                axes.plot(gpu_index, target_index, marker=marker, markersize=11, color=colour)
            else:
                axes.plot(gpu_index, target_index, marker="_", markersize=9, color=find_hex("muted"))
        running_gpu_names = ", ".join(name for name, is_run in zip(GPUS, can_run, strict=True) if is_run)
        captions.append(
            f"{build_target} runs on {running_gpu_names}{' and all later GPUs' if runs_on_later_gpus else ''}"
        )
    gpu_labels = [f"{name}\n{major}.{minor}" for name, (major, minor) in GPUS.items()]
    axes.set_xticks([*range(len(GPUS)), later_x], [*gpu_labels, "later\nGPUs"], fontsize=9)
    axes.set_yticks(range(len(targets)), list(targets), fontsize=10, family="monospace")
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    figure.text(
        0.575,
        0.05,
        "■ machine code runs at once    ● the driver compiles PTX first    – refused",
        ha="center",
        fontsize=9,
        color=find_hex("fg"),
    )
    return Picture.of(figure, f"GPUs in the order of their compute capabilities. {'; '.join(captions)}.")


def layers(report: FollowReport) -> Picture:
    """Draw the software layers below a call, with one column per framework and some symbols of each layer."""
    call_records = [call_record for call_record in report.record if call_record.package != "here"]
    figure, axes = make_empty_axes(5.4, (0, 7.6), (0, 5.4), margin=0)
    column_width = 5.9 / len(call_records)
    for column_index, call_record in enumerate(call_records):
        left_x = 1.6 + column_index * column_width
        heading = f"{call_record.package}: {call_record.call}"
        draw_text(axes, left_x + column_width / 2, 0.25, heading, ha="center", fontsize=11, weight="bold")
        for layer_index, colour in enumerate(_LAYER_COLOURS):
            _draw_layer(
                axes,
                left_x,
                0.5 + layer_index * 0.97,
                column_width - 0.12,
                _make_layer_lines(call_record, layer_index),
                colour,
            )
    for layer_index, (layer_name, layer_text) in enumerate(_LAYER_TEXTS):
        y = 0.5 + layer_index * 0.97 + 0.38
        draw_text(axes, 0.12, y - 0.1, layer_name, weight="bold")
        draw_text(axes, 0.12, y + 0.14, layer_text, "muted", fontsize=9)
    layer_names = ", ".join(layer_name for layer_name, _ in _LAYER_TEXTS)
    column_texts = [
        f"{call_record.package}: "
        + "; ".join(
            f"{_LAYER_TEXTS[layer_index][0]} {', '.join(_make_layer_lines(call_record, layer_index))}"
            for layer_index in range(len(_LAYER_TEXTS))
        )
        for call_record in call_records
    ]
    return Picture.of(
        figure,
        f"The layers of {call_records[0].call} from top to bottom: {layer_names}. {'. '.join(column_texts)}. "
        f"{call_records[0].provenance.label}.",
    )


def _make_layer_lines(call_record: CallLayers, layer_index: int) -> list[str]:
    """Return the text of a layer: the first symbol names, and the number of other names."""
    symbol_names = [name for name, _ in call_record.layers[layer_index]]
    if layer_index == 0 and call_record.package == "PyTorch":
        call_names = [name for name in symbol_names if name.endswith(("::call", "::redispatch"))]
        code_names = [name for name in symbol_names if "native::" in name or name.endswith("::impl")]
        return [
            f"dispatcher: {call_names[0]}",
            f"ATen: {code_names[0]}",
            f"dispatcher: {call_names[1]}",
            f"ATen: {code_names[-1]}",
        ]
    short_names = [name.replace("cupy: ", "cupy.").split(": ")[-1] for name in symbol_names]
    if layer_index == len(_LAYER_TEXTS) - 1:
        short_names = [f"{name[:26]}…" if len(name) > 27 else name for name in short_names]
    hidden_count = len(short_names) - _MAX_SHOWN_NAMES
    return short_names[:_MAX_SHOWN_NAMES] + ([f"and {hidden_count} more"] if hidden_count > 0 else [])


def _draw_layer(axes: Axes, left_x: float, top_y: float, width: float, lines: list[str], colour: str) -> None:
    """Draw a layer's box with its lines."""
    draw_box(axes, left_x, top_y, width, 0.85, f"{colour}-pale", edge_colour="muted")
    for index, line in enumerate(lines):
        y = top_y + 0.425 + (index - (len(lines) - 1) / 2) * 0.19
        draw_text(axes, left_x + width / 2, y, line, ha="center", fontsize=9)


def bulk_copy(tile_bytes: int = 8192) -> Picture:
    """Draw a cluster of two blocks, and the steps of a bulk copy to the first block's shared memory."""
    figure, axes = make_empty_axes(4.4, (0, 7.6), (0, 4.4), margin=0)

    def draw_labelled_box(x: float, y: float, width: float, height: float, text: str, colour: str) -> None:
        draw_box(axes, x, y, width, height, colour, text, edge_colour="muted", text_colour="fg", fontsize=9)

    draw_labelled_box(0.15, 0.35, 4.75, 2.75, "", "panel")
    draw_text(axes, 0.3, 0.2, "block 0, on one SM", weight="bold")
    draw_labelled_box(5.5, 0.35, 1.95, 2.75, "", "panel")
    draw_text(axes, 5.6, 0.2, "block 1, on another SM", weight="bold")
    draw_labelled_box(0.3, 0.55, 1.35, 0.6, "thread 0", "accent-pale")
    draw_labelled_box(3.35, 0.55, 1.4, 0.6, "all threads", "accent-pale")
    draw_labelled_box(0.3, 1.85, 1.35, 1.05, "bulk copy\nengine (TMA)", "warn-pale")
    draw_labelled_box(2.45, 1.85, 2.3, 1.05, "", "good-pale")
    draw_text(axes, 3.2, 2.02, "shared memory", ha="center", fontsize=9)
    draw_labelled_box(2.55, 2.2, 0.85, 0.55, "tile", "good")
    draw_labelled_box(3.55, 2.2, 1.1, 0.55, f"barrier:\n{tile_bytes:,} B", "good")
    draw_labelled_box(5.65, 1.85, 1.65, 1.05, "shared memory", "good-pale")
    draw_labelled_box(0.15, 3.55, 7.3, 0.6, "L2 and memory: the array", "grid")
    draw_arrow(axes, (0.975, 1.15), (0.975, 1.85))
    draw_text(axes, 1.05, 1.5, "1 requests the tile", fontsize=9)
    draw_arrow(axes, (0.975, 3.55), (0.975, 2.9))
    draw_text(axes, 1.05, 3.32, "2 loads it", fontsize=9)
    draw_arrow(axes, (1.65, 2.45), (2.55, 2.45))
    draw_text(axes, 1.72, 2.25, "3 stores it", fontsize=9)
    draw_arrow(axes, (4.1, 1.15), (4.1, 2.2))
    draw_text(axes, 4.02, 1.5, "4 wait for the barrier", ha="right", fontsize=9)
    draw_arrow(axes, (4.75, 2.45), (5.65, 2.45), arrowstyle="<|-|>")
    draw_text(axes, 5.2, 2.2, "cluster", ha="center", fontsize=9)
    return Picture.of(
        figure,
        "A cluster of two blocks on two SMs, which can read each other's shared memory. In block "
        "0: (1) thread "
        "0 requests a tile of the array from the bulk copy engine of its SM; (2) the engine loads "
        "the tile from "
        "memory; (3) it stores the tile in shared memory; (4) all threads wait for a barrier in "
        f"shared memory, which counts the bytes that have arrived, until there are {tile_bytes:,}.",
    )
