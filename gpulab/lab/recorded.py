"""``gl.recorded``: recordings from real GPUs such as the H200. They ship with gpulab for users who have other
GPUs or none.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from gpulab import views
from gpulab.lab.monitor import recorder as sessions
from gpulab.lab.monitor.monitor import Monitor
from gpulab.lab.timeline import TimelineReport
from gpulab.views.tables import Table
from virtualgpu.compile.same_program import is_same_program
from virtualgpu.errors import GpulabError, did_you_mean
from virtualgpu.protocol import Launch
from virtualgpu.records import Dim3, KernelSource, LaunchTrace, Timeline, io

INDEX_FORMAT = "gpulab-recorded-launches"
INDEX_FILE_NAME = "launches.json"
TIMELINE_FORMAT = "gpulab-recorded-timelines"
TIMELINE_INDEX_NAME = "timelines.json"


class NotRecordedError(GpulabError, LookupError):
    """Error raised if no shipped record matches a request. The message lists the available records."""


@dataclass(frozen=True, slots=True)
class RecordedLaunch:
    """A recorded kernel launch with its program, arguments, device and date.

    The attribute ``what`` is ``"blocks"`` or ``"warp"``. ``arguments`` come from `describe_arguments`.
    ``code`` is the CUDA C++ source of a record of blocks; the trace of a warp already contains its source.
    """

    name: str
    what: str
    device: str
    date: str
    kernel: str
    grid: Dim3
    block: Dim3
    shared_bytes: int
    arguments: tuple[str, ...]
    code: str
    options: tuple[str, ...] = ()

    @property
    def trace(self) -> Any:
        """The recorded data of the launch, which is a `LaunchTrace` or a `WarpTrace`."""
        return load_record(self.name)

    def __str__(self) -> str:
        return f"{self.kernel} {_format_size(self.grid)} × {_format_size(self.block)}"


@dataclass(frozen=True, slots=True)
class _ShippedRecording:
    name: str
    says: str
    device: str
    date: str


class RecordedTimeline(_ShippedRecording):
    """A timeline that ships with gpulab. The object also contains a description of the program, the device
    and the date.
    """

    @property
    def timeline(self) -> Timeline:
        """The timeline that was recorded."""
        timeline: Timeline = load_record(self.name)
        return timeline


class RecordedSession(_ShippedRecording):
    """A recording of the load of a GPU in several phases, with the device and the date."""


class RecordedTable:
    """A table of the shipped records. The attribute ``.record`` is a tuple of these records."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.record = tuple(records)

    def _make_table(self) -> Table:
        recording_rows = tuple(
            (
                recording.name,
                recording.what,
                _format_size(recording.grid),
                _format_size(recording.block),
                ", ".join(recording.arguments),
                f"{recording.device}, {recording.date}",
            )
            if isinstance(recording, RecordedLaunch)
            else (
                recording.name,
                _KIND_NAMES[type(recording)],
                "",
                "",
                recording.says,
                f"{recording.device}, {recording.date}",
            )
            for recording in self.record
        )
        headings = ("gl.recorded(name)", "of", "grid", "block", "arguments or program", "recorded on")
        return Table("Recorded launches and timelines that ship with gpulab", headings, recording_rows)

    def to_pandas(self) -> Any:
        """Return the table of records as a `pandas.DataFrame`."""
        return self._make_table().to_pandas()

    def __repr__(self) -> str:
        return self._make_table().text()

    def _repr_html_(self) -> str:
        return self._make_table().card()


Record = RecordedLaunch | RecordedTimeline | RecordedSession
_KIND_NAMES = {RecordedTimeline: "timeline", RecordedSession: "monitor"}


def recorded(
    name: str | None = None,
) -> RecordedTable | views.LaunchChart | views.WarpStepper | TimelineReport | Monitor:
    """List the GPU recordings that ship with gpulab, or display one of them.

    Parameters
    ----------
    name
        A record's name in the list, such as ``"h200_vector_add_blocks"``; all are listed without one.

    Returns
    -------
    RecordedTable, LaunchChart, WarpStepper, TimelineReport or Monitor
        The list; or the SM and the time of each block of a launch; or the steps of one warp; or the
        operations in the streams of a program over time; or the load of a GPU in several phases. Captions
        name the GPU, the date and the tool of the recording.

    Raises
    ------
    NotRecordedError
        If there is no record of that name; the message names the nearest.

    Examples
    --------
    >>> gl.recorded()
    """
    shipped_records: tuple[Record, ...] = (
        *load_launch_records(),
        *load_timeline_records(),
        _make_session_record(),
    )
    records_by_name = {shipped_record.name: shipped_record for shipped_record in shipped_records}
    if name is None:
        return RecordedTable(shipped_records)
    if name not in records_by_name:
        raise NotRecordedError(
            f"There is no recording {name!r}.{did_you_mean(name, records_by_name)} gl.recorded() "
            "lists all recordings."
        )
    record = records_by_name[name]
    if isinstance(record, RecordedSession):
        return Monitor(record=sessions.load_recorded_session())
    if isinstance(record, RecordedTimeline):
        return TimelineReport(record.timeline)
    trace = record.trace
    return views.LaunchChart(trace) if isinstance(trace, LaunchTrace) else views.WarpStepper(trace)


def find_same_launch(device: str, launch: Launch) -> LaunchTrace:
    """Return the recorded block trace of the same launch on the GPU `device`, with the same program, shape
    and arguments.

    See `is_same_program`. Arrays are compared by type and shape, not by their contents.

    Raises
    ------
    NotRecordedError
        If no record matches; the message lists the recorded launches.
    """
    device_records = [
        recording
        for recording in load_launch_records()
        if recording.what == "blocks" and _is_device_named(device, recording.device)
    ]
    launch_shape = (launch.grid, launch.block, launch.shared_bytes)
    same_shape_records = [
        recording
        for recording in device_records
        if (recording.grid, recording.block, recording.shared_bytes) == launch_shape
    ]
    for recorded_launch in [
        recording
        for recording in same_shape_records
        if recording.arguments == describe_arguments(launch.args)
    ]:
        if is_same_program(
            KernelSource(recorded_launch.kernel, recorded_launch.code, recorded_launch.options), launch.source
        ):
            trace: LaunchTrace = recorded_launch.trace
            return trace
    if device_records:
        recorded_hint = (
            f"The recorded launches are {', '.join(map(str, device_records))}; gl.recorded() lists "
            "their arguments"
        )
    else:
        devices = sorted({recording.device for recording in load_launch_records()})
        recorded_hint = f"There are recordings of {', '.join(devices) or 'no GPU'}"
    launch_text = f"{launch.source.name} {_format_size(launch.grid)} × {_format_size(launch.block)}"
    arguments = f"({', '.join(describe_arguments(launch.args))})"
    raise NotRecordedError(
        f"There is no recording on {device} of this launch: {launch_text} {arguments}. {recorded_hint}."
    )


def describe_arguments(args: Sequence[Any]) -> tuple[str, ...]:
    """Describe the arguments of a launch as text. An array becomes ``"float32[1024, 4]"``, and a number
    becomes its value.
    """
    return tuple(f"{arg.dtype}{list(arg.shape)}" if getattr(arg, "shape", ()) else f"{arg}" for arg in args)


def load_record(name: str) -> Any:
    """Load a shipped record such as ``h200_maze_warp``, which was recorded on an H200.

    Raises
    ------
    FileNotFoundError
        If there is no record of that name.
    """
    trace_file = _find_folder() / f"{name}.npz"
    if not trace_file.is_file():
        raise FileNotFoundError(f"gpulab does not contain a recorded trace with the name {name!r}")
    return io.read(trace_file.read_bytes(), name)


@functools.cache
def load_launch_records() -> tuple[RecordedLaunch, ...]:
    """Return all shipped records of kernel launches, in the order in which the index lists them."""
    index_data = json.loads((_find_folder() / INDEX_FILE_NAME).read_text(encoding="utf-8"))
    io.check_version(index_data, INDEX_FORMAT, INDEX_FILE_NAME)
    return tuple(map(_make_launch_record, index_data["launches"]))


@functools.cache
def load_timeline_records() -> tuple[RecordedTimeline, ...]:
    """Return all shipped timelines, in the order in which the index lists them."""
    index_file = _find_folder() / TIMELINE_INDEX_NAME
    if not index_file.is_file():
        return ()
    index_data = json.loads(index_file.read_text(encoding="utf-8"))
    io.check_version(index_data, TIMELINE_FORMAT, TIMELINE_INDEX_NAME)
    return tuple(RecordedTimeline(**index_entry) for index_entry in index_data["timelines"])


def _make_session_record() -> RecordedSession:
    recording = sessions.load_recorded_session()
    description = (
        "phases: first a few and then many busy blocks, an addition, a matrix "
        "multiplication, a slow data loader, and short kernels"
    )
    return RecordedSession(
        sessions.SHIPPED_SESSION_NAME, description, recording.provenance.device, recording.date
    )


def _make_launch_record(entry: dict[str, Any]) -> RecordedLaunch:
    record_fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()
    }
    return RecordedLaunch(**record_fields)


def _find_folder() -> Any:
    return resources.files("gpulab") / "data" / "recordings"


def _format_size(size: Dim3) -> str:
    return "×".join(f"{n:,}" for n in size[: 3 if size[2] > 1 else 2 if size[1] > 1 else 1])


def _is_device_named(name: str, device: str) -> bool:
    """Return whether a short name such as ``"H200"`` or ``"nvidia h200"`` means ``"NVIDIA H200"``."""
    return set(name.lower().split()) <= set(device.lower().split())
