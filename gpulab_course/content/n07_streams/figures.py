"""Figures of notebook 07: times by several clocks, and the pipeline "conveyor"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import traitlets
from matplotlib.figure import Figure

from gpulab import session
from gpulab.lab.timeline import timeline
from gpulab.views.parts import boxes
from gpulab.views.parts.palette import find_hex
from gpulab.views.timeline.steered import SteeredTimeline
from gpulab_course.content.n07_streams import clocks, work
from gpulab_course.teach.picture import Picture
from virtualgpu.records import Activity, Provenance, Timeline

_CLOCK_STYLES = (("warn", "o", 6, "-"), ("accent", "s", 11, "-"), ("good", "^", 6, "--"))
PIECE_COUNTS = (1, 2, 4, 8, 16)
ELEMENT_COUNT = 1 << 19
ROUND_COUNT = 32


def three_clocks(
    iterations: Sequence[int], times_ms: Mapping[str, Sequence[float]], origin: Provenance
) -> Picture:
    """Draw the times that three clocks measure for several numbers of iterations in a kernel.

    Parameters
    ----------
    iterations
        The number of iterations in the kernel, one per point.
    times_ms
        The times of each clock by its name, in ms.
    origin
        The provenance of the times.
    """
    figure = Figure(figsize=(7.6, 3.4), dpi=100)
    axes = figure.add_axes((0.1, 0.17, 0.87, 0.74))
    for (clock_name, line_times_ms), (colour_name, marker, marker_size, line_style) in zip(
        times_ms.items(), _CLOCK_STYLES, strict=False
    ):
        # Two of them nearly coincide: hollow marks around small ones.
        axes.plot(
            iterations,
            line_times_ms,
            line_style,
            marker=marker,
            markersize=marker_size,
            color=find_hex(colour_name),
            label=clock_name,
            markerfacecolor="none" if marker_size > 6 else find_hex(colour_name),
        )
    axes.set_xlabel("iterations in the kernel")
    axes.set_ylabel("ms")
    axes.set_ylim(bottom=0)
    axes.set_title(origin.label, fontsize=10, color=find_hex("muted"))
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, loc="upper left")
    summary = "; ".join(
        f"{clock_name} from {line_times_ms[0]:.3g} to {line_times_ms[-1]:.3g} ms"
        for clock_name, line_times_ms in times_ms.items()
    )
    return Picture.of(
        figure,
        f"Three clocks, {iterations[0]:,} to {iterations[-1]:,} iterations in the kernel, "
        f"{origin.label}: {summary}.",
    )


def clock_spans(no_wait_ms: float, with_wait_ms: float, events_ms: float, origin: Provenance) -> Picture:
    """Draw the intervals that three clocks measure, on a time axis with the work of the host and the GPU.

    Parameters
    ----------
    no_wait_ms, with_wait_ms
        The times on the host clock for the launch alone, and for the launch with a wait.
    events_ms
        The time between two events around the kernel.
    origin
        The provenance of the times.
    """
    figure = Figure(figsize=(7.6, 3.0), dpi=100)
    axes = figure.add_axes((0.2, 0.15, 0.76, 0.73))
    launch_us, end_us, kernel_us = 1e3 * no_wait_ms, 1e3 * with_wait_ms, 1e3 * events_ms
    begin_us = max(0.0, end_us - kernel_us)
    axes.barh([0], [launch_us], 0.6, color=find_hex("warn"))
    axes.barh([0], [end_us - launch_us], 0.6, left=launch_us, color=find_hex("other"))
    axes.barh([1], [end_us - begin_us], 0.6, left=begin_us, color=find_hex("good"))
    middle_us = (begin_us + end_us) / 2
    axes.annotate("launch", (0, -0.36), (0, 3), textcoords="offset points", fontsize=9, va="bottom")
    axes.text(middle_us, 0, "wait", ha="center", va="center", fontsize=9, color=find_hex("fg"))
    axes.text(middle_us, 1, "kernel", ha="center", va="center", fontsize=9, color=find_hex("on-good"))
    spans = ((0.0, launch_us, "warn"), (0.0, end_us, "accent"), (begin_us, end_us, "good"))
    for clock_row, (start_us, stop_us, colour_name) in enumerate(spans, start=2):
        axes.plot(
            [start_us, stop_us],
            [clock_row, clock_row],
            color=find_hex(colour_name),
            marker="|",
            markersize=12,
            linewidth=2,
        )
        label = f"{stop_us - start_us:.1f} µs"
        axes.annotate(
            label, (stop_us, clock_row), (8, 0), textcoords="offset points", va="center", fontsize=9
        )
    row_names = ("host", "GPU", "1: host, no wait", "2: host, with a wait", "3: two events")
    axes.set_yticks(range(5), row_names, fontsize=9)
    axes.set_ylim(4.6, -0.9)
    axes.set_xlim(-0.005 * end_us, 1.15 * end_us)
    axes.set_xlabel("µs since the call of the launch", fontsize=9)
    axes.tick_params(axis="x", labelsize=9)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_title(origin.label, fontsize=10, color=find_hex("muted"))
    return Picture.of(
        figure,
        "Where three clocks start and stop. The host launches a kernel and waits; the GPU runs the kernel. "
        f"Clock 1, host without a wait, covers the launch: {launch_us:.1f} µs. "
        f"Clock 2, host with a wait, covers launch and kernel: {end_us:.1f} µs. "
        f"Clock 3, two events, covers the kernel: {kernel_us:.1f} µs ({origin.label}).",
    )


def run_conveyor(pieces: int, pinned: bool = True, waits: bool = True) -> Timeline:
    """Copy an array to the device, process it and copy it back, all in pieces, and return the timeline.

    Parameters
    ----------
    pieces
        The number of pieces.
    pinned
        Whether the host's arrays are pinned.
    waits
        Whether the work on a piece waits for its copy to the device.
    """
    cp = session.cp()
    allocate = session.cupyx().empty_pinned if pinned else np.empty
    x, y = (allocate(ELEMENT_COUNT, np.float32) for _ in range(2))
    x[...] = np.linspace(0.1, 0.9, ELEMENT_COUNT, dtype=np.float32)
    in_stream, work_stream, out_stream = (cp.cuda.Stream(non_blocking=True) for _ in range(3))
    piece_elements = -(-ELEMENT_COUNT // pieces)
    device_pieces = [cp.zeros(piece_elements, dtype=cp.float32) for _ in range(pieces)]
    work.simmer(device_pieces[0])  # warm up
    cp.cuda.Device().synchronize()
    with timeline() as report:
        for chunk_index, device_chunk in enumerate(device_pieces):
            host_slice = slice(chunk_index * piece_elements, (chunk_index + 1) * piece_elements)
            device_chunk.set(x[host_slice], stream=in_stream)
            if waits:
                work_stream.wait_event(in_stream.record())
            with work_stream:
                work.simmer(device_chunk, ROUND_COUNT)
            out_stream.wait_event(work_stream.record())
            device_chunk.get(stream=out_stream, out=y[host_slice], blocking=False)
        for stream in (in_stream, work_stream, out_stream):
            stream.synchronize()
    return report.record


def find_early_kernels(record: Timeline) -> list[tuple[int, int]]:
    """Return pairs of indices: a copy to the device, and a kernel that started before this copy ended."""
    copy_indices = [
        activity_index for activity_index, a in enumerate(record.activities) if a.copy_kind == "HtoD"
    ]
    kernel_indices = [
        activity_index for activity_index, a in enumerate(record.activities) if a.kind == "CONCURRENT_KERNEL"
    ]

    def launch_number(index: int) -> int:
        return record.activities[index].correlation_id

    index_pairs = zip(
        sorted(copy_indices, key=launch_number), sorted(kernel_indices, key=launch_number), strict=False
    )
    return [(a, b) for a, b in index_pairs if record.activities[b].start_ns < record.activities[a].end_ns]


def running_at_once(activities: Sequence[Activity]) -> int:
    """Return the largest number of operations that ran at the same time on the device."""
    largest_count = 0
    for activity in activities:
        running_count = sum(
            other_activity.start_ns <= activity.start_ns < other_activity.end_ns
            for other_activity in activities
        )
        largest_count = max(largest_count, running_count)
    return largest_count


def when_it_starts(record: Timeline) -> str:
    """Return the right answer to the prediction about the start of the last launched kernel."""
    *other_operations, last_kernel = sorted(record.activities, key=lambda activity: activity.correlation_id)
    if last_kernel.start_ns >= max(activity.end_ns for activity in other_operations):
        return "after all four"
    if any(activity.start_ns < last_kernel.start_ns < activity.end_ns for activity in other_operations):
        return "when running blocks end"
    return "at once"


def played(program: Callable[..., Any], steps: int) -> Timeline:
    """Run a program such as ``exercises.rollout`` with two environments, and return its timeline."""
    cp = session.cp()
    cupyx = session.cupyx()

    def copy_to_pinned(array: Any) -> Any:
        pinned_copy = cupyx.empty_pinned(array.shape, array.dtype)
        pinned_copy[...] = array
        return pinned_copy

    initial_observations = np.linspace(0.1, 0.9, 64, dtype=np.float32).reshape(2, 32)
    envs = [
        work.Environment(initial_observation, copy_to_pinned, clocks.busy)
        for initial_observation in initial_observations
    ]
    program(envs, work.decide, 1)  # warm up
    cp.cuda.Device().synchronize()
    with timeline() as report:
        program(envs, work.decide, steps)
    return report.record


class Conveyor(SteeredTimeline):
    """A timeline of copies and kernels, with controls for the number of pieces, pinned memory and event
    waits.
    """

    pieces = traitlets.Int().tag(sync=True)
    pinned = traitlets.Int(1).tag(sync=True)
    waits = traitlets.Int(1).tag(sync=True)

    def __init__(self, pieces: int = 1) -> None:
        self._timelines = {(pieces, 1, 1): run_conveyor(pieces)}
        self._session_context = session.bind_current_device()
        super().__init__(self._timelines[pieces, 1, 1])
        self.pieces = pieces
        self.steer(
            boxes.slider("Pieces", "pieces", PIECE_COUNTS, [str(n) for n in PIECE_COUNTS]),
            boxes.slider("Host memory", "pinned", (0, 1), ("pageable", "pinned")),
            boxes.slider("Work waits for its copy", "waits", (0, 1), ("no: the event is missing", "yes")),
        )

    def at(self, pieces: int, pinned: bool = True, waits: bool = True) -> Timeline:
        """Return the timeline of the program with the given settings. The first call with given settings runs
        the program.
        """
        key = (pieces, int(pinned), int(waits))
        if key not in self._timelines:
            with self._session_context():
                self._timelines[key] = run_conveyor(pieces, pinned, waits)
        return self._timelines[key]

    def describe_settings(self) -> str:
        return f"The conveyor with {self.pieces} pieces"

    def show_timeline(self) -> None:
        """Show the timeline for the chosen settings with a summary, and name the kernels that started too
        early.
        """
        record = self.at(self.pieces, bool(self.pinned), bool(self.waits))
        single_piece_ns = self.at(1, bool(self.pinned)).span_ns
        early_pairs = find_early_kernels(record)
        summary = (
            f"{self.pieces} {'piece' if self.pieces == 1 else 'pieces'}, "
            f"{'pinned' if self.pinned else 'pageable'} memory: {record.span_ns / 1e3:,.0f} µs, "
            f"{single_piece_ns / max(1, record.span_ns):.2f} times as fast as in one piece."
        )
        if early_pairs:
            summary += f" {len(early_pairs)} of {self.pieces} kernels began before their data had arrived."
        self.show(record, summary=summary, faults=early_pairs)
