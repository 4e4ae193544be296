"""Figures of notebook 11 in addition to the views of gpulab."""

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

SIZES = tuple(1 << e for e in range(10, 23, 2))
NAMES = ("one by one", "as a graph")
MODES = {
    "global": "streamCaptureModeGlobal",
    "thread-local": "streamCaptureModeThreadLocal",
    "relaxed": "streamCaptureModeRelaxed",
}


def busy_share(record: Timeline) -> float:
    """Part of the time from the first operation's start to the last one's end in which any of them ran."""
    return busy_ns(record) / max(1, record.span_ns)


def kernels_span_ns(record: Timeline) -> int:
    """Return the time from the first kernel's start to the last one's end."""
    kernels = [a for a in record.activities if a.kind == "CONCURRENT_KERNEL"]
    return max(a.end_ns for a in kernels) - min(a.start_ns for a in kernels)


@dataclass(frozen=True, slots=True)
class BreakEven:
    """The host's time to make a graph, and the time that each launch of it saves."""

    capture_us: float
    end_us: float
    eager_us: float
    launch_us: float

    @property
    def launches(self) -> int:
        """The number of launches after which the graph has saved the time to make it, on the host."""
        saved = self.eager_us - self.launch_us
        return math.ceil((self.capture_us + self.end_us) / saved) if saved > 0 else 0


def break_even(work: Callable[[Any], None], x: Any) -> BreakEven:
    """Time, by the host's clock, what a graph of ``work(x)`` costs and saves."""
    stream = session.cp().cuda.Stream(non_blocking=True)
    session.cp().cuda.get_current_stream().synchronize()

    def took_us(call: Callable[[], Any]) -> float:
        """Return the shortest of five times, because other work of the host can delay a call."""
        times = []
        for _ in range(5):
            stream.synchronize()
            begun = clocks.host_ms()
            call()
            times.append(1e3 * (clocks.host_ms() - begun))
        return min(times)

    with stream:
        work(x)  # warm up
        eager_us = took_us(lambda: work(x))
        stream.synchronize()
        begun = clocks.host_ms()
        stream.begin_capture()
        work(x)
        captured = clocks.host_ms()
        graph = stream.end_capture()
        ended = clocks.host_ms()
        graph.launch(stream)  # the first one also uploads the graph
        launch_us = took_us(lambda: graph.launch(stream))
        stream.synchronize()
    return BreakEven(1e3 * (captured - begun), 1e3 * (ended - captured), eager_us, launch_us)


def in_a_capture(work: Callable[[Any], Any], *, mode: str = "relaxed", blocking: bool = False) -> str:
    """Give work to a stream that captures: ``"captured"``, or what refused it.

    Parameters
    ----------
    work
        Called with the stream, which is current.
    mode
        Of the capture: ``"global"``, ``"thread-local"`` or ``"relaxed"``, CuPy's.
    blocking
        Whether the stream and the legacy default stream wait for each other.

    Returns
    -------
    str
        The error's class and first sentence, and whether the capture was lost with it.
    """
    cuda = session.cp().cuda
    stream = cuda.Stream(non_blocking=not blocking)
    with stream:
        stream.begin_capture(getattr(cuda.runtime, MODES[mode]))
        said = "captured"
        lost = ""
        try:
            work(stream)
        except Exception as error:
            said = f"{type(error).__name__}: {str(error).split('. ')[0].splitlines()[0].rstrip('.')}"
        try:
            stream.end_capture()
        except Exception:
            lost = "; the capture is lost"
    return said + lost


def forty(x: Any) -> None:
    """Forty kernels that add 1 to every element."""
    cp = session.cp()
    for _ in range(40):
        cp.add(x, 1, out=x)


def film(n: int) -> tuple[Timeline, Timeline]:
    """`forty` kernels over `n` float32, launched one by one and as a graph; both after a warm-up."""
    cp = session.cp()
    x = cp.zeros(n, dtype=cp.float32)
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.get_current_stream().synchronize()
    with stream:
        forty(x)
        stream.begin_capture()
        forty(x)
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
        with timeline() as eager:
            forty(x)
            stream.synchronize()
        with timeline() as replayed:
            graph.launch(stream)
            stream.synchronize()
    return eager.record, replayed.record


class Film(SteeredTimeline):
    """Forty kernels launched one by one above the same as a graph, with a slider for their size."""

    elements = traitlets.Int().tag(sync=True)

    def __init__(self, sizes: tuple[int, ...] = SIZES) -> None:
        self._films = {sizes[0]: film(sizes[0])}
        self._here = session.here()
        super().__init__(*self._films[sizes[0]], names=NAMES)
        self.elements = sizes[0]
        texts = [f"{n:,} floats" for n in sizes]
        self.steer(boxes.slider("Elements a kernel", "elements", sizes, texts))

    def at(self, n: int) -> tuple[Timeline, Timeline]:
        """Return the two timelines of `n` elements, which are run at the first call."""
        if n not in self._films:
            with self._here():
                self._films[n] = film(n)
        return self._films[n]

    def times(self, n: int) -> float:
        """Return the time of the separate launches relative to that of the graph."""
        eager, replayed = self.at(n)
        return eager.span_ns / replayed.span_ns

    def left_of_the_gain(self, small: int, large: int) -> str:
        """Compare in words the graph's gain for `large` elements with its gain for `small` ones."""
        left = (self.times(large) - 1) / (self.times(small) - 1)
        return "about the same factor" if left > 0.75 else "half of it" if left > 0.25 else "almost nothing"

    def chosen(self) -> str:
        return f"The film of {self.elements:,} elements"

    def show_chosen(self) -> None:
        """Show the two films of so many elements."""
        eager, replayed = self.at(self.elements)
        summary = (
            f"{self.elements:,} floats a kernel: {eager.span_ns / 1e3:,.0f} µs one by one, "
            f"{replayed.span_ns / 1e3:,.0f} µs as a graph, {self.times(self.elements):.1f} times shorter; "
            f"a kernel is under way for {busy_share(eager):.0%} and {busy_share(replayed):.0%} of it."
        )
        self.show(eager, replayed, names=NAMES, summary=summary)
