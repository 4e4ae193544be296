"""Open a trace file of gpulab, of the PyTorch profiler or of another tool that writes Chrome trace events.

Files come from anywhere: nothing in them is executed, sizes and depths are bounded, and what does not fit
is either left out and counted, or ends in an error that says so.
"""

from __future__ import annotations

import operator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from gpulab.analysis.files import foreign, ours
from gpulab.analysis.files.events import Document
from gpulab.analysis.files.write import FORMAT
from virtualgpu.records import Timeline
from virtualgpu.records.io import TraceFormatError

# Events of another tool's file that are shown and analysed within seconds.
MOST_EVENTS = 100_000


def open_file(path: str | Path, most_events: int = MOST_EVENTS) -> Timeline:
    """Read a timeline from a file.

    Times of a file that gpulab saved are exactly those of the record. What it had measured is recorded now,
    on the day that it was saved. What other tools wrote is recorded on the device that they name; of more
    than `most_events` the first are read, and the timeline's note says so.

    Raises
    ------
    ValueError
        If `most_events` is below 1.
    FileNotFoundError
        If there is no such file.
    TraceFormatError
        If the file holds no timeline, is damaged, or is too large.
    """
    path = Path(path)
    name = path.name
    if operator.index(most_events) < 1:
        raise ValueError(f"most_events is a number of at least 1, not {most_events!r}.")
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {name} here; t.save({name!r}) writes one.")
    try:
        with Document(path) as document:
            events = document.events()
            first = list(islice(events, 1))
            if _is_ours(document.about):
                return ours.timeline(document.about, chain(first, events), name)
            found = foreign.read(chain(first, events), most_events, name)
        if _is_ours(document.about):  # which came after the events
            with Document(path) as again:
                return ours.timeline(document.about, again.events(), name)
        if not document.has_events:
            raise TraceFormatError(
                f"{name} holds no trace events; choose a file that a profiler has exported."
            )
        return foreign.timeline(found, document.about, name)
    except (OverflowError, RecursionError) as error:
        raise TraceFormatError(f"{name} is damaged: a number in it is too large to be a time.") from error


def _is_ours(about: dict[str, Any]) -> bool:
    other = about.get("otherData")
    return isinstance(other, dict) and other.get("format") == FORMAT
