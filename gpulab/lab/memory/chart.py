"""``gl.memory``: a device's memory over time, while cells run."""

from __future__ import annotations

import re
from typing import Any

from gpulab import session, views
from gpulab.lab._base import SampledResult
from gpulab.session.pools.pool import find_current_pool
from gpulab.session.pools.readings import MemoryRecorder
from gpulab.views._saving import Writers, make_csv_writer
from gpulab.views.memory.memory_text import describe_memory
from virtualgpu.records.memory import MemorySamples
from virtualgpu.records.memory.samples import SAMPLE_COLUMNS

_MAX_SIZE_BYTES = 1 << 62
_UNIT_EXPONENTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def memory(rate_hz: float = 10.0) -> MemoryRecording:
    """Show a live chart of the device memory that the memory pool, the driver and other programs use.

    A displayed chart takes readings in the background until it is stopped or its cell is run again.
    Allocations are marked with their size and line, and the last ten minutes are kept. A block that ends
    after a few readings is drawn by event, with one step for each allocation, free, or return of memory to
    the device; a button switches to time. On a real GPU the values are measured. On a virtual GPU, the pool
    is exactly CuPy's, and the driver's share is modelled.

    Parameters
    ----------
    rate_hz
        The number of readings per second, at most 100.

    Returns
    -------
    MemoryRecording
        The live chart: ``pause()``, ``resume()``, ``stop()``, ``save("x.html")``, ``save("x.csv")``;
        ``.record`` holds the data (`virtualgpu.records.memory.MemorySamples`). As a ``with`` block it records
        what happens in the block, and no longer.

    Raises
    ------
    ValueError
        If the rate is not a number above 0 and at most 100.

    Examples
    --------
    >>> m = gl.memory()
    >>> m
    >>> with gl.memory() as m:
    ...     x = cp.zeros((1024, 1024))
    >>> m.record.peak
    """
    return MemoryRecording(rate_hz)


class MemoryRecording(
    SampledResult[MemorySamples],
    recording_name="memory recording",
    start_code="with gl.memory() as m:",
    restart_code="gl.memory()",
):
    """A recording of the memory use of a device. The recording starts when it is displayed or its ``with``
    block begins, and ends at `stop`.
    """

    def __init__(self, rate_hz: float) -> None:
        super().__init__(rate_hz)
        self._held_arrays: list[Any] = []  # what the chart's button has allocated

    def _make_recorder(self) -> MemoryRecorder:
        self._session_context = session.bind_current_device()
        return MemoryRecorder(self._rate_hz)

    @property
    def state(self) -> str:
        """The state of the recording, which is ``"new"``, ``"live"``, ``"paused"`` or ``"stopped"``."""
        return "new" if self._recorder is None else str(self._recorder.sampler.state)

    def stop(self) -> None:
        """End the recording. The chart stays visible, and the arrays that its button allocated are freed."""
        if self._is_recording:
            self._held_arrays.clear()
        super().stop()

    def _show_state(self) -> None:
        if self._cached_picture is not None:
            self._cached_picture.show_state(self.state)

    def _make_writers(self) -> Writers:
        return {".csv": make_csv_writer(SAMPLE_COLUMNS, self.record.rows), **super()._make_writers()}

    # Buttons of the chart

    def _perform_action(self, action: str, size_text: str) -> str:
        """Perform the action of a button in the calling thread, and return the text to show."""
        if action == "pause":
            self.pause()
        elif action == "resume":
            self.resume()
        else:
            with self._session_context(), self._recorder.allocation_recorder.record_this_thread():
                return self._change_memory(action, size_text)
        return ""

    def _change_memory(self, action: str, size_text: str) -> str:
        cp = session.cp()
        if action == "allocate":
            self._held_arrays.append(cp.cuda.alloc(parse_size(size_text)))
            return f"Allocated {size_text}."
        if action == "free":
            if not self._held_arrays:
                return "This button has not allocated anything. Use del to free your own arrays."
            array = self._held_arrays.pop()
            size_bytes = array.mem.size
            del array
            return f"Freed {size_bytes:,} B. The pool keeps this memory."
        if action == "empty":
            find_current_pool().free_all_blocks()
            return "Free pool blocks were returned to the device."
        if action == "limit":
            find_current_pool().set_limit(size=parse_size(size_text))
            return (
                f"Limit set to {size_text}." if parse_size(size_text) else "The pool no longer has a limit."
            )
        raise ValueError(f"There is no button {action!r}.")

    # Display

    def _make_picture(self) -> views.MemoryChart:
        line_count = len(self.record.lines)
        view = views.MemoryChart(lambda: self.record, self.state, self._perform_action)
        self._recorder.call_on_reading(view.send_reading, line_count)
        return view

    def _make_sentence(self) -> str:
        return describe_memory(self.record, self.state)


def shorten_text(text: str) -> str:
    """Return the repr of a text, which is shortened to a few dozen characters."""
    return f"{text!r}" if len(text) <= 40 else f"{text[:40]!r}..."


def parse_size(text: str) -> int:
    """Return the number of bytes for a size such as ``64 MiB``, ``1.5 GB`` (read as GiB) or ``4096``.

    Raises
    ------
    ValueError
        For anything else.
    """
    normalized_text = text.replace(",", "").replace("_", "").strip().lower()
    size_match = re.fullmatch(r"(\d+(?:\.\d+)?) *([kmgt]?)(?:i?b)?", normalized_text)
    if not size_match:
        raise ValueError(
            f'{shorten_text(text)} is not a size. Write for example "64 MiB", or a number of bytes.'
        )
    size_bytes = float(size_match[1]) * 2 ** _UNIT_EXPONENTS[size_match[2]]
    if size_bytes >= _MAX_SIZE_BYTES:
        raise ValueError(f"{shorten_text(text)} is more than any memory can hold.")
    return int(size_bytes)
