"""The shipped recordings, and reading the output of Nsight Compute."""

from __future__ import annotations

import numpy as np
import pytest

from gpulab.lab.recorded import load_launch_records, load_record
from tools.recordings import list_recordings, load_recording, nsight, pack_output, parse_recording
from virtualgpu.records import LaunchTrace, WarpTrace

TRACES = sorted(record.name for record in load_launch_records())


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


def test_shipped_recording_has_device_date_and_versions() -> None:
    assert "h200" in list_recordings()
    recording = load_recording("h200")
    assert recording.provenance.source == "recorded"
    assert recording.provenance.device == "NVIDIA H200"
    assert recording.date in recording.provenance.label
    assert {"driver", "CUDA", "NVRTC", "CuPy", "ncu"} <= set(recording.versions)
    assert len(recording.timings) >= 20
    with pytest.raises(FileNotFoundError, match="h200"):
        load_recording("h2000")


@pytest.mark.parametrize("name", TRACES)
def test_shipped_traces_are_recorded_and_plausible(name: str) -> None:
    trace = load_record(name)
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


def test_nsight_compute_output_is_parsed_by_launch() -> None:
    launches = nsight.parse_csv(NCU)
    assert [(launch.kernel, launch.metrics) for launch in launches] == [
        ("vector_add", {"a.sum": 1015899.0}),
        ("tr", {"a.sum": 2.5}),
    ]
    assert nsight.parse_csv("==ERROR== no permission") == []
