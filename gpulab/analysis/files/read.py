"""Open a trace file of gpulab, of the PyTorch profiler, of Nsight Systems or of another tool.

Files are not trusted: nothing in them is executed, and sizes and depths are limited. Contents that exceed a
limit are left out and counted, or raise an error.
"""

from __future__ import annotations

import operator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from gpulab.analysis.files import foreign, nsys, ours
from gpulab.analysis.files.events import Document
from gpulab.analysis.files.write import FORMAT
from virtualgpu.records import Timeline
from virtualgpu.records.io import TraceFormatError

# Number of events of another tool's file that can be shown and analysed within seconds.
MAX_EVENTS = 100_000


def open_file(path: str | Path, most_events: int = MAX_EVENTS) -> Timeline:
    """Read a timeline from a file.

    A file that gpulab saved yields exactly the times of the saved timeline. A measured timeline becomes a
    recorded one, with the day on which it was saved. A timeline of another tool is recorded on the device
    that the file names. If it has more than `most_events` events, the first ones are read, and the timeline's
    note reports that.

    Raises
    ------
    ValueError
        If `most_events` is below 1.
    FileNotFoundError
        If there is no such file.
    TraceFormatError
        If the file does not contain a timeline, is damaged, or is too large.
    """
    path = Path(path)
    name = path.name
    if operator.index(most_events) < 1:
        raise ValueError(f"most_events must be at least 1, not {most_events!r}.")
    if not path.is_file():
        raise FileNotFoundError(
            f"The file {name} does not exist. A timeline `t` writes this file with t.save({name!r})."
        )
    with path.open("rb") as file:
        is_database = file.read(len(nsys.SQLITE_SIGNATURE)) == nsys.SQLITE_SIGNATURE
    try:
        if is_database:
            return nsys.read_timeline(path, most_events)
        with Document(path) as document:
            events = document.events()
            first_event = list(islice(events, 1))
            if _is_ours(document.header):
                return ours.make_timeline(document.header, chain(first_event, events), name)
            file_contents = foreign.read_slices(chain(first_event, events), most_events, name)
        if _is_ours(document.header):  # the header came after the events
            with Document(path) as second_document:
                return ours.make_timeline(document.header, second_document.events(), name)
        if not document.has_events:
            raise TraceFormatError(
                f"{name} does not contain trace events. Choose a file that a profiler has exported."
            )
        return foreign.make_timeline(file_contents, document.header, name)
    except (OverflowError, RecursionError) as error:
        raise TraceFormatError(f"{name} is damaged: a number in it is too large to be a time.") from error


def _is_ours(header: dict[str, Any]) -> bool:
    other_data = header.get("otherData")
    return isinstance(other_data, dict) and other_data.get("format") == FORMAT
