"""What a timeline by CUPTI holds of records made by hand, and what is asked of CuPy for it. `--fake-gpu`."""

from __future__ import annotations

import gc
import struct
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import gpulab as gl
from gpulab.analysis.cupti import kinds
from gpulab.analysis.cupti.records import TimelineParts
from tests.real import fake_gpu
from virtualgpu.errors import GpulabError
from virtualgpu.records import Provenance, Timeline
from virtualgpu.records.timeline import StreamInfo

pytestmark = pytest.mark.gpu
CALLS = {1: "cudaMemsetAsync", 2: "cudaDeviceSynchronize"}


@pytest.fixture(autouse=True)
def fake(request: pytest.FixtureRequest) -> Any:
    cupti = request.config.stash.get(fake_gpu.CUPTI, None)
    if cupti is None:
        pytest.skip("tells a stand-in what to tell")
    assert gl.use_device("auto").kind == "cuda"
    return cupti


def api(cbid: int, start: int, end: int, correlation: int, thread: int = 77) -> bytes:
    return struct.pack("<IIQQIIII", kinds.RUNTIME, cbid, start, end, 1, thread, correlation, 0)


def memset(start: int, end: int, correlation: int, stream: int = 7) -> bytes:
    record = struct.pack("<IIQQQIIII", kinds.MEMSET, 0, 4096, start, end, 0, 1, stream, correlation)
    return record.ljust(88, b"\0")


def event(correlation: int, stream: int) -> bytes:
    """A CUDA event that was recorded in a stream."""
    return struct.pack(
        "<IIIIIIIIQQQ", kinds.CUDA_EVENT, correlation, 1, stream, 9, 0, 0, 0, 0, 0, correlation
    )


def waited(start: int, end: int, correlation: int) -> bytes:
    """The host waited for all of the device's work."""
    none = 0xFFFFFFFF
    return struct.pack(
        "<IIQQIIIIQII", kinds.SYNCHRONIZATION, 4, start, end, correlation, 1, none, none, 0, 0, 0
    )


def marker(flags: int, time: int, number: int) -> bytes:
    """The begin (2) or the end (4) of a range."""
    return struct.pack("<IIQIIIIIIQQ", kinds.MARKER, flags, time, number, 2, 1, 77, 0, 0, 0, 0)


class Library:
    """What `Cupti` does for a recorder; its clock goes on by 1000 ns at each reading."""

    def __init__(self, *records: bytes, dropped: int = 0) -> None:
        self.records = records
        self._dropped = dropped
        self.now, self.log = 1000, []  # type: ignore[var-annotated]
        self.step = 1000
        self.collected: list[bool] = []

    def start(self, kinds: Any, calls: Any) -> None:
        self.log.append("start")
        self.kinds = kinds
        self.calls = calls

    def stop(self) -> None:
        self.log.append("stop")

    def read_timestamp_ns(self) -> int:
        self.now += self.step
        return self.now

    def count_dropped(self) -> int:
        return self._dropped

    def list_call_names(self, domain: int) -> dict[int, str]:
        return CALLS if domain == 2 else {}

    def take_buffers(self) -> Iterator[tuple[memoryview, list[int]]]:
        self.collected.append(gc.isenabled())
        for record in self.records:
            yield memoryview(record), [0]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Any:
    from gpulab.real.cupti import recorder

    monkeypatch.setattr(recorder, "_record_stream_marks", list)
    return recorder


def recorded(recorder: Any, library: Library) -> Timeline:
    cupti_recorder = recorder.CuptiRecorder(library, Provenance("measured", "a GPU"))
    cupti_recorder.start()
    timeline = cupti_recorder.stop()
    assert isinstance(timeline, Timeline)
    return timeline


# The clock is read 16 times to find its offset, then when the recording begins, and when it ends.
BEGUN = 18_000
ENDED = 19_000


def test_timeline_contains_only_records_within_its_time_span(recorder: Any) -> None:
    library = Library(
        api(1, BEGUN - 1, BEGUN + 5, 3),
        api(1, BEGUN, BEGUN + 5, 4),
        api(1, ENDED - 1, ENDED + 9, 5),
        api(1, ENDED, ENDED + 9, 6),
        memset(BEGUN + 30, BEGUN + 40, 5),
        memset(BEGUN + 10, BEGUN + 20, 4),
        waited(BEGUN - 1, BEGUN, 7),
        waited(BEGUN, BEGUN + 1, 8),
        waited(ENDED, ENDED + 5, 9),
        marker(2, BEGUN - 60, 1),
        marker(4, BEGUN - 1, 1),
        marker(2, BEGUN - 50, 2),
        marker(4, BEGUN, 2),
    )
    timeline = recorded(recorder, library)
    assert (timeline.method, timeline.provenance.label) == ("CUPTI", "measured on a GPU")
    assert (timeline.start_ns, timeline.end_ns) == (BEGUN, ENDED)
    assert [call.start_ns for call in timeline.calls] == [BEGUN, ENDED - 1]
    assert [(a.start_ns, a.size_bytes) for a in timeline.activities] == [
        (BEGUN + 10, 4096),
        (BEGUN + 30, 4096),
    ]
    assert [wait.start_ns for wait in timeline.synchronizations] == [BEGUN]
    assert [(nvtx_range.start_ns, nvtx_range.end_ns) for nvtx_range in timeline.ranges] == [
        (BEGUN - 50, BEGUN)
    ]
    assert (timeline.lost, timeline.note) == (0, "")
    assert library.log == ["start", "stop"]


def test_a_timeline_ends_with_its_last_operation(recorder: Any) -> None:
    late = recorded(recorder, Library(api(1, BEGUN, BEGUN + 5, 4), memset(BEGUN, ENDED + 700, 4)))
    assert late.end_ns == ENDED + 700


def test_lost_records_are_counted_and_noted(recorder: Any) -> None:
    call = api(1, BEGUN, BEGUN + 5, 4)
    timeline = recorded(recorder, Library(call, memset(0, 0, 4), memset(BEGUN, BEGUN + 1, 4), dropped=2))
    assert timeline.lost == 3
    assert timeline.note == "CUPTI reported no times for 3 records"
    assert (
        recorded(recorder, Library(memset(BEGUN, BEGUN + 1, 4))).note == "CUPTI reported no calls of the host"
    )


def test_notes_name_lost_records_and_graphs(recorder: Any) -> None:
    item = SimpleNamespace
    replays = (
        "a graph takes longer while its nodes are recorded, and the order of the nodes is the observed "
        "order, not that of the edges"
    )
    silent = "CUPTI reported no calls of the host"
    lost = "CUPTI reported no times for 1 record"

    def note(lost: int = 0, **parts: Any) -> str:
        return str(recorder._make_note(TimelineParts(**parts), lost))

    assert note() == note(calls=[item()]) == note(calls=[item()], activities=[item()]) == ""
    assert note(activities=[item()]) == silent
    assert note(has_graphs=True) == replays
    assert note(1, has_graphs=True, activities=[item()]) == f"{lost}; {replays}; {silent}"


def test_streams_get_the_numbers_that_cupti_reports(recorder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    marked = [StreamInfo(0, 1, "default stream"), StreamInfo(0, 1234, "stream 1", True, -2)]
    monkeypatch.setattr(recorder, "_record_stream_marks", lambda: marked)
    timeline = recorded(
        recorder,
        Library(
            api(1, BEGUN, BEGUN + 5, 4),
            memset(BEGUN, BEGUN + 10, 4, 13),
            event(2, 55),
            event(8, 7),
            event(9, 13),
        ),
    )
    assert StreamInfo(0, 13, "stream 1", True, -2) in timeline.streams
    assert 1234 not in {stream.stream_id for stream in timeline.streams}
    assert timeline.activities[0].stream_id == 13


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_collection_is_off_while_records_are_read(recorder: Any, enabled: bool) -> None:
    library = Library()
    was = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        recorded(recorder, library)
        assert (library.collected, gc.isenabled()) == ([False], enabled)
    finally:
        (gc.enable if was else gc.disable)()


def test_the_recording_ends_though_the_device_has_failed(
    recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library()
    cupti_recorder = recorder.CuptiRecorder(library, Provenance("measured", "a GPU"))
    cupti_recorder.start()

    def fail() -> None:
        raise RuntimeError("the device has failed")

    monkeypatch.setattr(recorder.runtime, "deviceSynchronize", fail)
    with pytest.raises(RuntimeError, match="the device has failed"):
        cupti_recorder.stop()
    assert library.log == ["start", "stop"]


def test_recording_synchronizes_the_device_before_it_ends(
    recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library()
    monkeypatch.setattr(recorder.runtime, "deviceSynchronize", lambda: library.log.append("waited"))
    recorded(recorder, library)
    assert library.log == ["start", "waited", "stop"]


def test_cupti_clock_offset_uses_the_closest_readings(recorder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    queries: list[tuple[int, int, str]] = []
    lines = SimpleNamespace(
        start=lambda: queries.append((0, 0, "start")),
        stop=lambda: queries.append((0, 0, "stop")),
        line=lambda *question: queries.append(question),
    )
    monkeypatch.setattr(recorder, "LineWatch", lambda: lines)
    # Pairs of readings of Python's clock around one of CUPTI's; the first pair is far apart.
    readings = iter([0, 900, 1000, 1020, *[2000, 2300] * 14])
    monkeypatch.setattr(recorder, "time", SimpleNamespace(time_ns=lambda: next(readings)))
    thread = threading.current_thread()
    library = Library(api(1, 900_000, 900_100, 4, thread.native_id or 0), memset(900_050, 900_060, 4))
    library.step = 50_000
    timeline = recorded(recorder, library)
    # The second pair is the closest: 1000 + 2 · 50,000 on CUPTI's clock is 1,010 on Python's.
    ahead = 101_000 - 1_010
    assert queries == [
        (0, 0, "start"),
        (0, 0, "stop"),
        (thread.native_id, 900_000 - ahead, "cudaMemsetAsync"),
    ]
    assert timeline.calls[0].thread == thread.ident


# -- what is asked of CuPy --------------------------------------------------------------------------------


def test_streams_of_the_program_have_names_and_properties() -> None:
    cp = gl.cp
    gc.collect()
    x = cp.zeros(64, cp.int8)
    older_handles = {int(item.ptr) for item in gc.get_objects() if type(item) is cp.cuda.Stream}
    streams = [cp.cuda.Stream(), cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(priority=-1)]
    with gl.timeline() as t:
        for stream in (*streams, cp.cuda.Stream.null):
            x.set(bytes(64) and x.get(), stream=stream)
    named = [s for s in t.record.streams if s.name.startswith("stream ")]
    handles = sorted(older_handles - {0, 1, 2} | {int(stream.ptr) for stream in streams})
    names = {handle: f"stream {at}" for at, handle in enumerate(handles, 1)}
    assert {(s.name, s.non_blocking, s.priority) for s in named} >= {
        (names[int(streams[0].ptr)], False, 0),
        (names[int(streams[1].ptr)], True, 0),
        (names[int(streams[2].ptr)], False, -1),
    }
    assert [s.name for s in t.record.streams if s not in named] == ["default stream"]
    assert {s.device_id for s in t.record.streams} == {0}


@pytest.mark.parametrize(
    ("status", "captures"),
    [
        (900, True),
        (901, True),
        (906, True),
        (700, False),
        (899, False),
        (902, False),
        (905, False),
        (907, False),
    ],
)
def test_no_timeline_begins_while_a_stream_captures(
    recorder: Any, status: int, captures: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = recorder.runtime.CUDARuntimeError(status, "cudaError", "as CUDA says")

    def refuse() -> None:
        raise error

    recorder.refuse_capture()
    monkeypatch.setattr(recorder.runtime, "deviceSynchronize", refuse)
    if captures:
        with pytest.raises(GpulabError, match=r"Start the timeline before begin_capture\(\)"):
            recorder.refuse_capture()
    else:
        with pytest.raises(recorder.runtime.CUDARuntimeError):
            recorder.refuse_capture()
