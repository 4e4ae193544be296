"""Trace files: saved timelines are restored, the format is valid, other and damaged files are handled."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import re
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import virtualgpu.cp as cp
from gpulab.analysis import sentences
from gpulab.analysis.critical_path import find_critical_path
from gpulab.analysis.files.read import open_file
from gpulab.analysis.files.write import save_timeline
from gpulab.analysis.gaps import find_gaps
from gpulab.analysis.overlap import find_overlaps
from tests.trace.programs import MODELLED, program, simulate
from virtualgpu.model import machine as slot
from virtualgpu.model.devices import device_info
from virtualgpu.model.machine import Machine
from virtualgpu.model.recording.timeline import Recording
from virtualgpu.records import Activity, HostCall, NvtxRange, Provenance, SourceLine, Timeline
from virtualgpu.records.io import TraceFormatError


@pytest.fixture(scope="module")
def busy() -> Iterator[Timeline]:
    """Return a timeline with two devices, streams, events, a graph with a fork, ranges and waits."""
    previous = slot._current_machine.machine
    machine = Machine([device_info("H200"), device_info("H200")])
    slot.use(machine)
    one = cp.cuda.Stream(non_blocking=True)
    two = cp.cuda.Stream(priority=-1)
    x = cp.ones(1 << 18, cp.float32)
    y = cp.ones(1 << 18, cp.float32)
    with one:
        one.begin_capture()
        x.fill(2)
        two.wait_event(one.record())
        with two:
            y.fill(3)
        x.fill(4)
        one.wait_event(two.record())
        graph = one.end_capture()
    nvtx = cp.cuda.nvtx
    recording = Recording(machine)
    recording.start()
    across = nvtx.RangeStart("crosses", 0xFF00FF00)
    nvtx.RangePush("outer <b>&amp;")
    with one:
        x.set(np.ones(x.size, np.float32))
        graph.launch()
        nvtx.RangePush("inner")
        two.wait_event(one.record())
    nvtx.RangeEnd(across)
    nvtx.RangePop()
    nvtx.Mark("mark")
    with two:
        y *= x
        two.launch_host_func(lambda _: None, None)
    float(y[0])
    nvtx.RangePop()
    with cp.cuda.Device(1):
        cp.zeros(10).fill(1)
    yield recording.stop()
    slot._current_machine.machine = previous


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.json"


# Our own


def test_a_saved_timeline_is_restored_unchanged(busy: Timeline, file: Path) -> None:
    assert {a.kind for a in busy.activities} >= {"CONCURRENT_KERNEL", "MEMCPY", "HOST_LAUNCH"}
    assert any(a.graph_id for a in busy.activities)
    assert {s.type for s in busy.synchronizations} == {"STREAM_WAIT_EVENT", "STREAM_SYNCHRONIZE"}
    assert len(busy.ranges) == 4
    for path in (file, file.with_suffix(".json.gz")):
        save_timeline(busy, path)
        assert open_file(path) == busy
    assert gzip.decompress(path.read_bytes()) == file.read_bytes()


@pytest.mark.parametrize("seed", range(5))
def test_generated_timelines_are_restored_unchanged(seed: int, file: Path) -> None:
    big = 1_750_000_000_000_000_000  # CUPTI counts ns from 1970, which needs more digits than a double has
    timeline = simulate(program(seed))
    moved = replace(
        timeline,
        start_ns=big,
        end_ns=big + timeline.duration_ns,
        activities=tuple(
            replace(a, start_ns=big + a.start_ns, end_ns=big + a.end_ns) for a in timeline.activities
        ),
        lost=seed,
        note="some “words”",
        calls=(HostCall("", big, big, 7, 0, SourceLine("cell [2]", 3, "größer = a < b")),),
        synchronizations=(),
    )
    for original in (timeline, moved, Timeline(provenance=MODELLED, method="model", start_ns=5, end_ns=5)):
        assert open_file(save_timeline(original, file)) == original


def test_a_measured_timeline_is_labelled_recorded_after_opening(busy: Timeline, file: Path) -> None:
    measured = replace(busy, provenance=Provenance("measured", "NVIDIA H200"), method="CUPTI")
    provenance = open_file(save_timeline(measured, file)).provenance
    assert (provenance.source, provenance.device) == ("recorded", "NVIDIA H200")
    assert provenance.detail == time.strftime("%Y-%m-%d", time.gmtime())
    again = open_file(save_timeline(open_file(file), file)).provenance
    assert again == provenance


def test_the_file_follows_the_trace_event_format(busy: Timeline, file: Path) -> None:
    """Slices of a track are nested, every arrow starts and ends within a slice, and all tracks have names."""
    data = json.loads(save_timeline(busy, file).read_text("utf-8"))
    slices: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    named = set()
    arrows = defaultdict(list)
    for event in data["traceEvents"]:
        place = (event["pid"], event["tid"])
        if event["ph"] == "M":
            named.add((place, event["name"]))
        elif event["ph"] == "X":
            assert event["dur"] >= 0
            start = round(event["ts"] * 1_000)
            slices[place].append((start, start + round(event["dur"] * 1_000)))
        elif event["ph"] in "sf":
            arrows[event["cat"], event["id"]].append(event)
        else:
            assert (event["ph"], event["s"], "dur" in event) == ("i", "t", False)
    for place, spans in slices.items():
        assert (place, "thread_name") in named
        stack: list[int] = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while stack and stack[-1] <= start:
                stack.pop()
            assert not stack or end <= stack[-1]
            stack.append(end)
    assert {category for category, _ in arrows} == {"ac2g", "after"}
    for ends in arrows.values():
        assert [event["ph"] for event in ends] == ["s", "f"]
        assert ends[0]["ts"] <= ends[1]["ts"]
        for event in ends:
            spans = slices[event["pid"], event["tid"]]
            assert any(start <= round(event["ts"] * 1_000) <= end for start, end in spans)
    processes = {event["args"]["name"] for event in data["traceEvents"] if event["name"] == "process_name"}
    assert processes == {"host", *(f"device {n}: virtual H200" for n in (0, 1))}
    assert data["otherData"]["origin"] == "modelled on virtual H200"


# The PyTorch profiler's: as libkineto writes them (output_json.cpp, PyTorch 2.6)


def event(category: str, name: str, ts: float, dur: float, pid: Any, tid: Any, **args: Any) -> dict[str, Any]:
    place = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid}
    return {**place, "ts": ts, "dur": dur, "args": args}


def kineto() -> dict[str, Any]:
    on7 = {"device": 0, "context": 1, "stream": 7}
    on20 = {"device": 0, "context": 1, "stream": 20}
    grid = {"grid": [4, 1, 1], "block": [256, 1, 1], "shared memory": 1024}
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150_000_000_000}],
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 1_750_000_000_000_000_000,
        "traceEvents": [
            {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0, "args": {"name": "python"}},
            {"ph": "M", "name": "thread_name", "pid": 0, "tid": 7, "ts": 0, "args": {"name": "stream 7 "}},
            event("cpu_op", "aten::copy_", 100.0, 60.0, 900, 900),
            event("cpu_op", "aten::to", 90.0, 80.0, 900, 900),
            event("user_annotation", "step", 80.0, 300.0, 900, 900),
            event("gpu_user_annotation", "step", 110.0, 100.0, 0, 7),
            event("python_function", "train.py(3): main", 0.0, 500.0, 900, 900),
            event("cuda_runtime", "cudaMemcpyAsync", 105.125, 50.0, 900, 900, correlation=10),
            event(
                "gpu_memcpy",
                "Memcpy HtoD (Pageable -> Device)",
                120.001,
                30.0,
                0,
                7,
                correlation=10,
                bytes=4096,
                **on7,
            ),
            event("cuda_runtime", "cudaLaunchKernel", 170.0, 5.0, 900, 900, correlation=11),
            event("kernel", "void gemm<float>()", 180.0, 40.0, 0, 7, correlation=11, **grid, **on7),
            event("cuda_runtime", "cudaEventRecord", 181.0, 1.0, 900, 900, correlation=12),
            event(
                "cuda_sync",
                "Stream Wait Event",
                183.0,
                0.0,
                0,
                20,
                correlation=13,
                wait_on_stream=7,
                wait_on_cuda_event_record_corr_id=12,
                wait_on_cuda_event_id=1,
                **on20,
            ),
            event("cuda_driver", "cuLaunchKernel", 185.0, 5.0, 900, 900, correlation=14),
            event("kernel", "second", 221.5, 10.0, 0, 20, correlation=14, **on20),
            event("cuda_runtime", "cudaGraphLaunch", 192.0, 4.0, 900, 900, correlation=15),
            *(
                event(
                    "kernel",
                    f"node{n}",
                    240.0 + 10 * n,
                    8.0,
                    0,
                    20,
                    correlation=15,
                    **on20,
                    **{"graph id": 3, "graph node id": n},
                )
                for n in (1, 2)
            ),
            event("gpu_memset", "Memset (Device)", 270.0, 1.0, 0, 20, correlation=16, bytes=64, **on20),
            event("cuda_runtime", "cudaDeviceSynchronize", 200.0, 90.0, 900, 900, correlation=17),
            {"ph": "s", "id": 11, "pid": 900, "tid": 900, "ts": 170.0, "cat": "ac2g", "name": "ac2g"},
            {"ph": "f", "id": 11, "pid": 0, "tid": 7, "ts": 180.0, "cat": "ac2g", "name": "ac2g", "bp": "e"},
            {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "Traces", "ts": 400.0},
            {"name": "process_sort_index", "ph": "M", "ts": 0, "pid": 0, "tid": 0, "args": {"sort_index": 5}},
        ],
        "traceName": "trace.json",
    }


def test_a_file_of_the_pytorch_profiler_becomes_a_timeline(file: Path) -> None:
    file.write_text(json.dumps(kineto()))
    timeline = open_file(file)
    packed = file.with_suffix(".json.gz")
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert open_file(packed).activities == timeline.activities
    assert timeline.provenance.label == (
        "recorded on NVIDIA H200 (PyTorch profiler, 2025-06-15, from x.json)"
    )
    assert (timeline.method, timeline.lost, timeline.note) == ("file", 0, "")
    activities = timeline.activities
    assert [(a.correlation_id, a.kind, a.name, a.stream_id, a.after, a.graph_id) for a in activities] == [
        (1, "MEMCPY", "Memcpy HtoD (Pageable -> Device)", 7, (), 0),
        (2, "CONCURRENT_KERNEL", "void gemm<float>()", 7, (1,), 0),
        (3, "CONCURRENT_KERNEL", "second", 20, (2,), 0),
        (4, "CONCURRENT_KERNEL", "node1", 20, (3,), 3),
        (5, "CONCURRENT_KERNEL", "node2", 20, (4,), 3),
        (6, "MEMSET", "Memset (Device)", 20, (5,), 0),
    ]
    copy, gemm = timeline.activities[:2]
    assert (copy.start_ns, copy.end_ns, copy.size_bytes) == (120_001, 150_001, 4096)
    assert (copy.copy_kind, copy.pinned) == ("HtoD", False)
    assert (gemm.grid, gemm.block, gemm.shared_bytes) == ((4, 1, 1), (256, 1, 1), 1024)
    assert {call.name: call.correlation_id for call in timeline.calls} == {
        "cudaMemcpyAsync": 1,
        "cudaLaunchKernel": 2,
        "cudaEventRecord": 0,
        "cuLaunchKernel": 3,
        "cudaGraphLaunch": 4,
        "cudaDeviceSynchronize": 0,
    }
    assert [(r.name, r.depth) for r in timeline.ranges] == [
        ("step", 0),
        ("aten::to", 1),
        ("aten::copy_", 2),
        ("Record Window End", 0),
    ]
    assert [(w.type, w.stream_id, w.after) for w in timeline.synchronizations] == [
        ("CONTEXT_SYNCHRONIZE", None, ()),
        ("STREAM_WAIT_EVENT", 20, (2,)),
    ]
    assert [s.name for s in timeline.streams] == ["stream 7", "stream 20"]


def test_a_foreign_file_can_be_analysed_and_saved_without_loss(file: Path) -> None:
    file.write_text(json.dumps(kineto()))
    timeline = open_file(file)
    assert "waiting for an event" in {gap.cause for gap in find_gaps(timeline)}
    assert sum(step.duration_ns for step in find_critical_path(timeline)) == timeline.duration_ns
    assert open_file(save_timeline(timeline, file)) == timeline


def test_event_categories_of_pytorch_1_8_to_1_11_are_supported(file: Path) -> None:
    old = {
        "kernel": "Kernel",
        "gpu_memcpy": "Memcpy",
        "gpu_memset": "Memset",
        "cuda_runtime": "Runtime",
        "cpu_op": "Operator",
    }
    trace = kineto()
    file.write_text(json.dumps(trace))
    today = open_file(file)
    for entry in trace["traceEvents"]:
        entry["cat"] = old.get(entry.get("cat"), entry.get("cat"))
    file.write_text(json.dumps(trace))
    assert open_file(file) == today


def test_operations_without_a_duration_are_left_out_and_counted(file: Path) -> None:
    trace = kineto()
    file.write_text(json.dumps(trace))
    whole = open_file(file)
    on7 = {"device": 0, "stream": 7}
    lost = [event("kernel", "lost", 0, 0, 0, 7, **on7), event("gpu_memcpy", "back", 150, -3, 0, 7, **on7)]
    trace["traceEvents"] += lost
    file.write_text(json.dumps(trace))
    timeline = open_file(file)
    assert replace(timeline, note="") == whole
    assert timeline.note == "2 events with a duration of zero or less were left out."
    file.write_text(json.dumps(lost))
    with pytest.raises(TraceFormatError, match="has no timeline: 2 events with a duration of zero or less"):
        open_file(file)


def test_a_trace_without_gpu_activity_suggests_what_to_record(file: Path) -> None:
    file.write_text(json.dumps([event("cpu_op", "aten::add", 1 + n, 0.5, 9, 9) for n in range(3)]))
    timeline = open_file(file)
    assert sentences.describe_timeline(timeline).endswith(
        ": no GPU work; 3 ranges of the host. It contains no GPU activity. Record it with "
        "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])."
    )
    file.write_text(json.dumps(OTHER))
    assert "ProfilerActivity" not in open_file(file).note, "another program's"


def test_gaps_name_the_operator_and_function_running_on_the_host(file: Path) -> None:
    on7 = {"device": 0, "stream": 7, "registers per thread": 64}
    frame = "python_function"
    events = [
        event(frame, "/usr/lib/python3.11/runpy.py(7): run", 0, 1000, 900, 900),
        event(frame, "train.py(12): step", 0, 1000, 900, 900),
        event(frame, "nn.Module: Linear_0", 10, 900, 900, 900),
        event(frame, "torch/nn/modules/linear.py(114): forward", 20, 800, 900, 900),
        event(frame, "<built-in function linear>", 30, 700, 900, 900),
        event(frame, "C:\\Python\\lib\\site-packages\\torch\\x.py(9): go", 40, 690, 900, 900),
        event("user_annotation", "ProfilerStep#1", 0, 1000, 900, 900),
        event("cpu_op", "aten::linear", 100, 600, 900, 900),
        event("cpu_op", "aten::addmm", 110, 580, 900, 900),
        event("cuda_runtime", "cudaLaunchKernel", 50, 2, 900, 900, correlation=1),
        event("kernel", "first", 60, 10, 0, 7, correlation=1, **on7),
        event("cuda_runtime", "cudaLaunchKernel", 680, 5, 900, 900, correlation=2),
        event("kernel", "second", 690, 10, 0, 7, correlation=2, **on7),
    ]
    file.write_text(json.dumps(events))
    timeline = open_file(file)
    assert [a.registers_per_thread for a in timeline.activities] == [64, 64]
    assert {call.source for call in timeline.calls} == {SourceLine("train.py", 12, "in step")}
    (gap,) = [gap for gap in find_gaps(timeline) if gap.where == "stream 7" and gap.before == 2]
    assert (gap.cause, gap.reason, str(gap.source)) == (
        "host computing",
        "the host ran aten::addmm",
        "train.py, line 12",
    )
    assert "the host runs aten::addmm" in {step.name for step in find_critical_path(timeline)}
    assert open_file(save_timeline(timeline, file)) == timeline


def test_a_long_host_step_names_the_operator_with_most_self_time(file: Path) -> None:
    events = []
    for n in range(20):
        events += [
            event("cpu_op", "aten::linear", 50 * n, 40, 1, 1),
            event("cpu_op", "aten::addmm", 50 * n + 2, 30, 1, 1),
            event("cpu_op", "aten::relu", 50 * n + 40, 9, 1, 1),
            event("cuda_runtime", "cudaLaunchKernel", 50 * n + 20, 2, 1, 1, correlation=n + 1),
            event("kernel", "gemm", 50 * n + 25, 5, 0, 7, correlation=n + 1, device=0, stream=7),
        ]
    file.write_text(json.dumps(events))
    timeline = open_file(file)
    assert "the host runs aten::addmm and others" in {step.name for step in find_critical_path(timeline)}


OTHER = [
    {"ph": "B", "name": "outer", "cat": "a", "pid": 1, "tid": "main", "ts": 10},
    {"ph": "B", "name": "inner", "cat": "a", "pid": 1, "tid": "main", "ts": 12, "args": {"a": 1}},
    {"ph": "E", "pid": 1, "tid": "main", "ts": 15.5, "args": {"b": 2}},
    {"ph": "X", "name": "other", "cat": "b", "pid": 1, "tid": 5, "ts": "11", "dur": 3},
    {"ph": "E", "pid": 1, "tid": "main", "ts": 30},
    {"ph": "i", "name": "mark", "pid": 1, "tid": 5, "ts": 12, "s": "t"},
    {"ph": "C", "name": "counter", "pid": 1, "ts": 12, "args": {"n": 3}},
]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(OTHER),
        json.dumps({"traceEvents": OTHER}),
        "\ufeff\n " + json.dumps(OTHER),
        json.dumps(OTHER)[:-1],
        json.dumps(OTHER)[:-1] + ",\n",
    ],
)
def test_slices_of_other_programs_become_ranges(text: str, file: Path) -> None:
    file.write_text(text, encoding="utf-8")
    timeline = open_file(file)
    assert [(r.name, r.start_ns, r.end_ns, r.depth, r.is_mark) for r in timeline.ranges] == [
        ("outer", 10_000, 30_000, 0, False),
        ("other", 11_000, 14_000, 0, False),
        ("inner", 12_000, 15_500, 1, False),
        ("mark", 12_000, 12_000, 1, True),
    ]
    assert len({r.thread for r in timeline.ranges}) == 2
    assert timeline.provenance.label == "recorded on an unnamed device (from x.json)"
    assert not timeline.activities


def test_invalid_events_are_left_out_and_counted(file: Path) -> None:
    nonsense: list[Any] = [
        {"ph": "X", "name": "no time", "dur": 1},
        {"ph": "X", "name": "backwards", "ts": 5, "dur": -1},
        {"ph": "X", "name": "far", "ts": 1e300, "dur": 1},
        {"ph": "X", "name": 7, "ts": 5, "dur": 1},
        {"ph": "X", "name": "a", "ts": True, "dur": 1},
        {"ph": "E", "ts": 5},
        {"ph": "B", "name": "never ends", "ts": 5},
        {"ph": "X", "name": "x", "pid": [1], "ts": 5},
        {"name": "no kind"},
        "text",
        None,
    ]
    file.write_text(json.dumps([*OTHER, *nonsense]))
    timeline = open_file(file)
    assert len(timeline.ranges) == 4
    assert timeline.note.startswith("1 event with a duration of zero or less was left out. ")
    assert f"{len(nonsense) - 1} events without a time or name" in timeline.note
    odd = {"grid": [1, "x"], "device": [], "stream": 2**99, "correlation": "7", "bytes": None}
    file.write_text(json.dumps([event("kernel", "k", 5, 2, "gpu", "s", **odd)]))
    kernel = open_file(file).activities[0]
    assert (kernel.grid, kernel.device_id, kernel.stream_id, kernel.size_bytes) == (None, 0, 0, 0)


# Damaged, hostile and missing files


def damaged_versions(content: bytes) -> dict[str, bytes]:
    data = json.loads(content)
    late = json.loads(content)
    late["otherData"]["version"] = 99
    cases = {"cut": content[: len(content) // 2], "newer": json.dumps(late).encode()}
    for key in ("provenance", "start_ns", "streams", "method"):
        broken = json.loads(content)
        del broken["otherData"][key]
        cases[f"without {key}"] = json.dumps(broken).encode()
    index = next(n for n, event in enumerate(data["traceEvents"]) if event.get("cat") == "kernel")
    for field, value in {
        "ts": "x",
        "ts ": None,
        "dur": -5,
        "name": 3,
        "ts  ": 1e308,
        "ts   ": 2**70,
        "args": [],
    }.items():
        broken = json.loads(content)
        broken["traceEvents"][index][field.strip()] = value
        cases[f"{field!r} {value!r}"] = json.dumps(broken).encode()
    for field, value in {
        "stream_id": "7",
        "kind": "NOTHING",
        "after": [1, "x"],
        "grid": [1, 2],
        "pinned": 1,
        "device_id": 2**80,
        "device_id ": True,
    }.items():
        broken = json.loads(content)
        broken["traceEvents"][index]["args"][field.strip()] = value
        cases[f"{field!r} {value!r}"] = json.dumps(broken).encode()
    return cases


def test_a_damaged_file_raises_a_short_one_line_error(busy: Timeline, file: Path) -> None:
    content = save_timeline(busy, file).read_bytes()
    for damage, damaged in damaged_versions(content).items():
        file.write_bytes(damaged)
        with pytest.raises(TraceFormatError) as error:
            open_file(file)
        message = str(error.value)
        assert message.startswith("x.json "), damage
        assert message.count("\n") == 0
        assert len(message) < 160, message


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"   ", "is empty"),
        (b"hello", "not JSON"),
        (b"{}", "trace events"),
        (b"[]", "none of its 0 events has a time"),
        (b"3", "trace events"),
        (b'{"traceEvents": {}}', "trace events"),
        (b'[{"ph": "M", "name": "x"}]', "no timeline"),
        (b"[" * 200_000, "nested too deeply|not JSON"),
        (b'{"a": NaN}', "not JSON"),
        (b'[{"ph": "X", "name": "a", "ts": ' + b"9" * 5_000 + b"}]", "not JSON"),
        (b"SQLite format 3\0\xff", "damaged"),
        (b"PK\x03\x04\xff", "zip archive"),
        (b"\x0a\xff\x80", "Perfetto's own"),
        (b"\xff\xfe\x00", "no text"),
        (b"\x1f\x8b\x08nothing", "compressed"),
        (gzip.compress(b"[" + b'{"ph": "X"},' * 90, mtime=0)[:-20], "is incomplete"),
    ],
)
def test_a_file_of_another_format_is_refused_with_the_reason(content: bytes, reason: str, file: Path) -> None:
    file.write_bytes(content)
    with pytest.raises(TraceFormatError, match=reason):
        open_file(file)


def test_missing_and_too_large_files_are_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match=r"x\.json"):
        open_file(file)
    monkeypatch.setattr("gpulab.analysis.files.events.MAX_TEXT_LENGTH", 1_000)
    file.write_bytes(b"[" + b" " * 2_000 + b"]")
    with pytest.raises(TraceFormatError, match="has more than"):
        open_file(file)
    file.write_bytes(gzip.compress(file.read_bytes()))  # small, but large after decompression
    assert file.stat().st_size < 100
    with pytest.raises(TraceFormatError, match="has more than"):
        open_file(file)


def test_random_damage_raises_a_format_error_or_is_read(busy: Timeline, file: Path) -> None:
    rng = random.Random(5)
    content = save_timeline(busy, file).read_bytes()
    opened = 0
    for _ in range(200):
        damaged = bytearray(content)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.choice(b'0123456789",:{}[]-ex ')
        file.write_bytes(damaged)
        try:
            timeline = open_file(file)
        except TraceFormatError:
            continue
        opened += 1
        assert all(isinstance(a, Activity) for a in timeline.activities)
        assert all(isinstance(r, NvtxRange) for r in timeline.ranges)
        find_overlaps(timeline), find_gaps(timeline), find_critical_path(timeline)
    assert 30 < opened < 200


# Large files


def test_only_the_first_events_of_a_large_file_are_read(file: Path) -> None:
    events = [event("kernel", f"k{n}", 10 * n, 5, 0, 7, correlation=n + 1) for n in range(3000)]
    random.Random(1).shuffle(events)
    file.write_text(json.dumps(events))
    part = open_file(file, 500)
    assert [a.name for a in part.activities] == [f"k{n}" for n in range(500)]
    assert "first 500 of 3,000 events" in part.note
    assert "most_events=3000" in part.note
    whole = open_file(file, 3000)
    assert len(whole.activities) == 3000
    assert whole.note == ""
    with pytest.raises(ValueError, match="at least 1"):
        open_file(file, 0)


def test_a_file_of_gpulab_ignores_the_event_limit(busy: Timeline, file: Path) -> None:
    assert open_file(save_timeline(busy, file), 1) == busy
    data = json.loads(file.read_text())
    about = data.pop("otherData")
    file.write_text(json.dumps({**data, "otherData": about}))  # after the events
    assert open_file(file, 1) == busy


def peak_bytes(path: Path) -> int:
    """Return the peak memory of reading a file, whether or not it contains a timeline."""
    tracemalloc.start()
    try:
        with contextlib.suppress(TraceFormatError):
            open_file(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("part", ["ts", "dur", "name", "list", "other"], ids=lambda part: f"a large {part}")
def test_large_values_use_memory_in_proportion_to_the_file(busy: Timeline, file: Path, part: str) -> None:
    """Long texts and long lists are both tested."""
    data = json.loads(save_timeline(busy, file).read_bytes())
    large: Any = [0] * 100_000 if part == "list" else "a" * 300_000
    if part == "other":
        data["more"] = [[]] * 100_000
    else:
        data["traceEvents"][-1][part if part != "list" else "ts"] = large
    file.write_text(json.dumps(data))
    assert peak_bytes(file) < 60 * file.stat().st_size


def test_events_are_not_all_kept_in_memory(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read a file of many empty lists, and a file of events with large unused arguments."""
    monkeypatch.setattr("gpulab.analysis.files.events._PIECE_LENGTH", 1 << 13)
    heavy = json.dumps(event("kernel", "k", 1, 1, 0, 7, junk=[[]] * 500))
    for text in ("[" + "[]," * 9_999 + "[]]", "[" + ",".join([heavy] * 30) + "]"):
        file.write_text(text)
        assert peak_bytes(file) < 8 * len(text), text[:20]


def test_reading_stops_after_very_many_events_without_a_time(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpulab.analysis.files.foreign._MAX_LOST", 1_000)
    slice_events = [{"ph": phase, "name": "step", "ts": 1, "pid": 1, "tid": 1} for phase in "BE"]
    file.write_text(json.dumps([*slice_events, *[1] * 1_100]))
    with pytest.raises(TraceFormatError, match=rf"{re.escape(file.name)} has more than 1,000 events without"):
        open_file(file)


def test_a_file_read_in_pieces_gives_the_same_timeline(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece can end anywhere: in a name, a number, a word, or between events."""
    data = kineto()
    data["traceEvents"].append({**data["traceEvents"][2], "name": "ü" * 50, "args": {"correlation": 1234567}})
    file.write_text(json.dumps({**data, "late": [True, None, 12345678]}, ensure_ascii=False, indent=1))
    whole = open_file(file)
    for size in (1, 2, 7, 64):
        monkeypatch.setattr("gpulab.analysis.files.events._PIECE_LENGTH", size)
        assert open_file(file) == whole
