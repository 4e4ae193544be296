"""Records as files, the shipped recordings, and reading what Nsight Compute prints."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from gpulab.lab.recorded import load, records
from tools.recordings import load_recording, nsight, pack_output, parse_recording, recording_names
from virtualgpu.records import LaunchTrace, Occupancy, Provenance, WarpTrace
from virtualgpu.records import io as trace_io

TRACES = sorted(record.name for record in records())


def a_launch_trace() -> LaunchTrace:
    here = Provenance("measured", "NVIDIA H200", "alone")
    limits = {"warps": 8, "blocks": 32, "registers": 8, "shared memory": 228}
    occupancy = Occupancy(
        provenance=here,
        block_threads=256,
        registers_per_thread=32,
        shared_bytes=0,
        blocks_per_sm=8,
        warps_per_sm=64,
        max_warps_per_sm=64,
        blocks_by_limit=limits,
        limiters=("warps", "registers"),
    )
    times = np.array([0, 32, 64], np.int64)
    return LaunchTrace(
        provenance=here,
        kernel_name="k",
        grid=(3, 1, 1),
        block=(256, 1, 1),
        shared_bytes=0,
        sm_count=132,
        block_index=np.arange(3),
        sm_id=np.array([0, 1, 2], np.int32),
        start_ns=times,
        end_ns=times + 320,
        occupancy=occupancy,
        timer_step_ns=32,
    )


def equal(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    if dataclasses.is_dataclass(a):
        return type(a) is type(b) and all(
            equal(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a)
        )
    return type(a) is type(b) and a == b


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    trace = a_launch_trace()
    path = trace_io.save(trace, tmp_path / "trace")
    assert path.name == "trace.npz"
    assert equal(trace_io.load(path), trace)


def test_recorded_says_when_in_every_provenance() -> None:
    recorded = trace_io.as_recorded(a_launch_trace(), "2026-11-21")
    assert recorded.provenance.label == "recorded on NVIDIA H200 (alone; 2026-11-21)"
    assert recorded.occupancy.provenance == recorded.provenance
    assert a_launch_trace().provenance.source == "measured"


def test_fields_of_an_older_version_take_their_defaults(tmp_path: Path) -> None:
    path = trace_io.save(a_launch_trace(), tmp_path / "trace.npz")
    with np.load(path) as file:
        content = {name: file[name] for name in file.files}
    header = json.loads(bytes(content["header"]))
    del header["record"]["fields"]["note"]
    header["record"]["fields"]["gone"] = 1
    content["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(path, **content)
    assert trace_io.load(path).note == ""


def test_newer_and_foreign_files_are_refused(tmp_path: Path) -> None:
    path = trace_io.save(a_launch_trace(), tmp_path / "trace.npz")
    with np.load(path) as file:
        content = {name: file[name] for name in file.files}
    header = json.loads(bytes(content["header"]))
    header["version"] = trace_io.VERSION + 1
    content["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(path, **content)
    with pytest.raises(trace_io.TraceFormatError, match="newer gpulab"):
        trace_io.load(path)
    np.savez(path, x=np.zeros(3))
    with pytest.raises(trace_io.TraceFormatError, match="no gpulab record"):
        trace_io.load(path)
    path.write_text("hello")
    with pytest.raises(trace_io.TraceFormatError, match="no gpulab record"):
        trace_io.load(path)
    with pytest.raises(TypeError, match="no record"):
        trace_io.save({"a": 1}, path)


def test_output_arrays_survive_packing() -> None:
    array = np.linspace(0, 1, 40, dtype=np.float32).reshape(5, 8)
    data = {
        "format": "gpulab-recording",
        "version": 1,
        "device": "NVIDIA X",
        "date": "2026-01-01",
        "versions": {},
        "seed": 1,
        "cases": {"c": {"inputs_sha256": "", "outputs": [pack_output(array, with_values=True)]}},
    }
    (output,) = parse_recording(data).cases["c"].outputs
    assert output.values is not None
    assert output.values.tobytes() == array.tobytes()
    assert output.shape == (5, 8)


def test_shipped_recordings_name_their_device_and_day() -> None:
    assert "h200" in recording_names()
    recording = load_recording("h200")
    assert recording.provenance.source == "recorded"
    assert recording.provenance.device == "NVIDIA H200"
    assert recording.date in recording.provenance.label
    assert {"driver", "CUDA", "NVRTC", "CuPy", "ncu"} <= set(recording.versions)
    assert len(recording.timings) >= 20
    with pytest.raises(FileNotFoundError, match="h200"):
        load_recording("h2000")


@pytest.mark.parametrize("name", TRACES)
def test_shipped_traces_are_recorded_and_sane(name: str) -> None:
    trace = load(name)
    assert trace.provenance.source == "recorded"
    assert trace.provenance.device == "NVIDIA H200"
    if isinstance(trace, WarpTrace):
        assert trace.granularity == "basic block"
        assert trace.active_mask[0] == 0xFFFFFFFF
        assert int(trace.line.max()) <= trace.code.count("\n")
        return
    assert isinstance(trace, LaunchTrace)
    blocks = trace.grid[0] * trace.grid[1] * trace.grid[2]
    assert np.array_equal(trace.block_index, np.arange(blocks))
    assert 0 <= trace.sm_id.min() <= trace.sm_id.max() < trace.sm_count == 132
    assert trace.start_ns.min() == 0
    assert np.all(trace.start_ns < trace.end_ns)


NCU = """==PROF== Connected to process 7
hello "world", said the program
==PROF== Profiling "vector_add" - 0: 0%....100% - 8 passes
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"
"0","7","python3","127.0.0.1","vector_add(const float *, int)","1","7","(256, 1, 1)","(40, 1, 1)","0","9.0","Command line profiler metrics","a.sum","request","1,015,899"
"0","7","python3","127.0.0.1","vector_add(const float *, int)","1","7","(256, 1, 1)","(40, 1, 1)","0","9.0","Command line profiler metrics","b.sum","","n/a"
"1","7","python3","127.0.0.1","tr","1","7","(256, 1, 1)","(40, 1, 1)","0","9.0","Command line profiler metrics","a.sum","request","2.5"
"""  # noqa: E501


def test_nsight_output_is_read_a_launch_at_a_time() -> None:
    launches = nsight.parse_csv(NCU)
    assert [(launch.kernel, launch.metrics) for launch in launches] == [
        ("vector_add", {"a.sum": 1015899.0}),
        ("tr", {"a.sum": 2.5}),
    ]
    assert nsight.parse_csv("==ERROR== no permission") == []
