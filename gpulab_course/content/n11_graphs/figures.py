"""Measurements and figures of notebook 11."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import traitlets

from gpulab import session
from gpulab.lab.timeline import busy_ns, timeline
from gpulab.views.parts import boxes
from gpulab.views.timeline.steered import SteeredTimeline
from gpulab_course.content.n07_streams import clocks
from virtualgpu.records import Timeline

ELEMENT_COUNTS = tuple(1 << exponent for exponent in range(10, 23, 2))
TIMELINE_NAMES = ("one by one", "as a graph")
MODES = {
    "global": "streamCaptureModeGlobal",
    "thread-local": "streamCaptureModeThreadLocal",
    "relaxed": "streamCaptureModeRelaxed",
}


def busy_share(record: Timeline) -> float:
    """Return the share of a timeline's duration in which at least one operation runs."""
    return busy_ns(record) / max(1, record.span_ns)


def kernels_span_ns(record: Timeline) -> int:
    """Return the time in ns from the start of the first kernel to the end of the last kernel."""
    kernels = [kernel for kernel in record.activities if kernel.kind == "CONCURRENT_KERNEL"]
    return max(kernel.end_ns for kernel in kernels) - min(kernel.start_ns for kernel in kernels)


@dataclass(frozen=True, slots=True)
class BreakEven:
    """The host time that the creation of a graph costs, and the host time that each launch of the graph
    saves.

    `end_us` is the time of ``end_capture``, and `eager_us` is the time of the same launches without a graph.
    """

    capture_us: float
    end_us: float
    eager_us: float
    launch_us: float

    @property
    def launches(self) -> int:
        """The number of graph launches that save as much host time as the creation of the graph costs. The
        number is 0 if a graph launch saves no time.
        """
        saved_us = self.eager_us - self.launch_us
        return math.ceil((self.capture_us + self.end_us) / saved_us) if saved_us > 0 else 0


def break_even(work: Callable[[Any], None], x: Any) -> BreakEven:
    """Measure the host time that the creation of a graph takes, and the time that each launch saves."""
    stream = session.cp().cuda.Stream(non_blocking=True)
    session.cp().cuda.get_current_stream().synchronize()

    def measure_shortest_us(call: Callable[[], Any]) -> float:
        """Return the shortest of five durations of a call, in µs."""
        durations_us = []
        for _ in range(5):
            stream.synchronize()
            start_ms = clocks.host_ms()
            call()
            durations_us.append(1e3 * (clocks.host_ms() - start_ms))
        return min(durations_us)

    with stream:
        work(x)  # warm up
        eager_us = measure_shortest_us(lambda: work(x))
        stream.synchronize()
        start_ms = clocks.host_ms()
        stream.begin_capture()
        work(x)
        capture_end_ms = clocks.host_ms()
        graph = stream.end_capture()
        end_ms = clocks.host_ms()
        graph.launch(stream)  # the first one also uploads the graph
        launch_us = measure_shortest_us(lambda: graph.launch(stream))
        stream.synchronize()
    return BreakEven(1e3 * (capture_end_ms - start_ms), 1e3 * (end_ms - capture_end_ms), eager_us, launch_us)


def in_a_capture(work: Callable[[Any], Any], *, mode: str = "relaxed", blocking: bool = False) -> str:
    """Run `work` during the capture of its stream, and return ``"captured"`` or the error.

    Parameters
    ----------
    work
        A function that is called with the stream, which is current.
    mode
        The mode of the capture: ``"global"``, ``"thread-local"`` or ``"relaxed"`` (CuPy's default).
    blocking
        Whether the stream and the legacy default stream wait for each other.

    Returns
    -------
    str
        The error's class and first sentence, and whether the error ended the capture.
    """
    cuda = session.cp().cuda
    stream = cuda.Stream(non_blocking=not blocking)
    with stream:
        stream.begin_capture(getattr(cuda.runtime, MODES[mode]))
        outcome_text = "captured"
        end_suffix = ""
        try:
            work(stream)
        except Exception as error:
            outcome_text = f"{type(error).__name__}: {str(error).split('. ')[0].splitlines()[0].rstrip('.')}"
        try:
            stream.end_capture()
        except Exception:
            end_suffix = "; the capture is lost"
    return outcome_text + end_suffix


def launch_forty_kernels(x: Any) -> None:
    """Launch forty kernels that add 1 to every element."""
    cp = session.cp()
    for _ in range(40):
        cp.add(x, 1, out=x)


def record_timelines(elements: int) -> tuple[Timeline, Timeline]:
    """Record timelines of forty kernels after a warm-up, launched one by one and as a graph."""
    cp = session.cp()
    x = cp.zeros(elements, dtype=cp.float32)
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.get_current_stream().synchronize()
    with stream:
        launch_forty_kernels(x)
        stream.begin_capture()
        launch_forty_kernels(x)
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
        with timeline() as eager_timeline:
            launch_forty_kernels(x)
            stream.synchronize()
        with timeline() as graph_timeline:
            graph.launch(stream)
            stream.synchronize()
    return eager_timeline.record, graph_timeline.record


class Film(SteeredTimeline):
    """Timelines of forty kernels, launched one by one and as a graph. A slider sets the array size."""

    elements = traitlets.Int().tag(sync=True)

    def __init__(self, element_counts: tuple[int, ...] = ELEMENT_COUNTS) -> None:
        self._timelines_by_size = {element_counts[0]: record_timelines(element_counts[0])}
        self._device_context = session.bind_current_device()
        super().__init__(*self._timelines_by_size[element_counts[0]], names=TIMELINE_NAMES)
        self.elements = element_counts[0]
        size_texts = [f"{element_count:,} floats" for element_count in element_counts]
        self.steer(boxes.slider("Elements per kernel", "elements", element_counts, size_texts))

    def find_timelines(self, elements: int) -> tuple[Timeline, Timeline]:
        """Return both timelines for arrays of `elements` elements. The first call for an array size records
        the timelines.
        """
        if elements not in self._timelines_by_size:
            with self._device_context():
                self._timelines_by_size[elements] = record_timelines(elements)
        return self._timelines_by_size[elements]

    def times(self, elements: int) -> float:
        """Return how many times longer the separate launches take than the graph."""
        eager_record, graph_record = self.find_timelines(elements)
        return eager_record.span_ns / graph_record.span_ns

    def left_of_the_gain(self, small_elements: int, large_elements: int) -> str:
        """Return a phrase that says how much of the graph's speedup for small arrays remains for large
        arrays.
        """
        remaining_share = (self.times(large_elements) - 1) / (self.times(small_elements) - 1)
        if remaining_share > 0.75:
            return "about the same factor"
        return "half of it" if remaining_share > 0.25 else "almost nothing"

    def describe_settings(self) -> str:
        """Return the title of the timelines that are currently shown."""
        return f"The timelines of {self.elements:,} elements"

    def show_timeline(self) -> None:
        """Show both timelines for the selected number of elements."""
        eager_record, graph_record = self.find_timelines(self.elements)
        summary = (
            f"{self.elements:,} floats per kernel: {eager_record.span_ns / 1e3:,.0f} µs one by one, "
            f"{graph_record.span_ns / 1e3:,.0f} µs as a graph, {self.times(self.elements):.1f} times "
            f"shorter; a kernel runs for {busy_share(eager_record):.0%} and "
            f"{busy_share(graph_record):.0%} of this time."
        )
        self.show(eager_record, graph_record, names=TIMELINE_NAMES, summary=summary)
