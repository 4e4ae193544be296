"""Records of named GPUs: the list, each picture, and the record that fits a launch."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from gpulab.lab import recorded
from gpulab.lab.recorded import (
    NotRecordedError,
    RecordedTimeline,
    describe_arguments,
    find_same_launch,
    load_launch_records,
    load_timeline_records,
)
from gpulab.views import LaunchChart, WarpStepper
from tools import cells
from tools.corpus import find_case
from tools.corpus.workloads import find_workload
from tools.recordings import traces
from tools.recordings.record import BLOCK_TRACES, SEED, WARP_TRACES
from tools.recordings.traces import (
    Recorder,
    ShownLaunch,
    read_shown,
    record_blocks,
    record_warps,
    write_shown_launches,
)
from virtualgpu.compile import nvrtc
from virtualgpu.protocol import Launch
from virtualgpu.records import KernelSource, LaunchTrace

needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")

N = 1 << 20
ARGS: Any = (*(np.ones(N, np.float32) for _ in range(3)), np.int32(N))
SHAPE: Any = ((4096, 1, 1), (256, 1, 1), ARGS, 0)
VECTOR_ADD = find_workload("vector_add_2^20").code
# The same program in other words, much as notebook 00 has it; and another one.
IN_OTHER_WORDS = """extern "C" __global__
void add(const float* p, const float* q, float* sum, int count) {
    int k = blockIdx.x * blockDim.x + threadIdx.x;  // which element is mine?
    if (k < count) {
        sum[k] = p[k] + q[k];
    }
}"""
SUBTRACTS = VECTOR_ADD.replace("a[i] + b[i]", "a[i] - b[i]")


def test_the_index_lists_every_record_with_its_data() -> None:
    folder = Path(gl.__file__).parent / "data" / "recordings"
    indexed = {record.name for record in (*load_launch_records(), *load_timeline_records())}
    # Ladders need no index: one a device.
    assert indexed == {path.stem for path in folder.glob("*.npz") if not path.stem.endswith("_ladder")}
    for record in load_launch_records():
        trace = record.trace
        assert record.what == ("blocks" if isinstance(trace, LaunchTrace) else "warp")
        assert (record.kernel, record.grid, record.block) == (trace.kernel_name, trace.grid, trace.block)
        assert trace.provenance.source == "recorded"
        assert trace.provenance.device == record.device
        assert trace.provenance.detail.startswith(record.date)
        assert record.kernel in (record.code or trace.code)


@pytest.mark.parametrize("entry", load_timeline_records(), ids=lambda entry: entry.name)
def test_shipped_timelines_are_recorded_and_plausible(entry: RecordedTimeline) -> None:
    record = entry.timeline
    assert (record.provenance.source, record.provenance.device) == ("recorded", entry.device)
    assert record.provenance.detail.startswith(entry.date)
    assert (record.method, record.lost) == ("CUPTI", 0)
    assert record.activities
    assert all(record.start_ns <= a.start_ns <= a.end_ns <= record.end_ns for a in record.activities)
    numbers = {call.correlation_id for call in record.calls}
    assert {a.correlation_id for a in record.activities if not a.graph_id} <= numbers


def test_arguments_in_the_index_are_those_of_the_corpus() -> None:
    known = {record.name: record.arguments for record in load_launch_records()}
    for title, of in BLOCK_TRACES.items():
        assert known[f"h200_{title}_blocks"] == describe_arguments(find_workload(of).make_args(np))
    for name in WARP_TRACES:
        assert known[f"h200_{name}_warp"] == describe_arguments(find_case(name).make_args(SEED).values)


def test_recorded_lists_all_records_and_shows_one_as_a_view() -> None:
    listing: Any = gl.recorded()
    assert all(record.name in repr(listing) for record in load_launch_records())
    assert "NVIDIA H200, 2026-" in repr(listing)
    assert "<table" in listing._repr_html_()
    *others, monitor = listing.record
    assert tuple(others) == (*load_launch_records(), *load_timeline_records())
    assert monitor.name == "h200_monitor"
    for name, kind in (("h200_vector_add_blocks", LaunchChart), ("h200_maze_warp", WarpStepper)):
        view = gl.recorded(name)
        assert isinstance(view, kind)
        assert "recorded on NVIDIA H200 (2026-" in repr(view)
    with pytest.raises(NotRecordedError, match=r"Did you mean 'h200_mandelbrot_\w+'\? gl.recorded\(\) lists"):
        gl.recorded("mandelbrot")


@needs_nvrtc
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("vector_add", VECTOR_ADD),
        ("vector_add", "/* mine */ " + VECTOR_ADD.replace("\n", "\n\n").replace("    ", "\t")),
        ("add", IN_OTHER_WORDS),
    ],
)
def test_equivalent_source_finds_the_recording(name: str, code: str) -> None:
    trace = find_same_launch("H200", Launch(KernelSource(name, code), *SHAPE))
    assert trace.provenance.label.startswith("recorded on NVIDIA H200 (2026-")
    assert (trace.grid, trace.block) == SHAPE[:2]


@needs_nvrtc
@pytest.mark.parametrize(
    ("code", "shape"),
    [
        (SUBTRACTS, SHAPE),
        (VECTOR_ADD, ((8192, 1, 1), (128, 1, 1), ARGS, 0)),
        (VECTOR_ADD, (*SHAPE[:3], 64)),
        (VECTOR_ADD, (*SHAPE[:2], (*ARGS[:3], np.int32(N - 1)), 0)),
        (VECTOR_ADD, (*SHAPE[:2], (*(np.ones(N, np.float64) for _ in range(3)), np.int32(N)), 0)),
        ("this does not compile", SHAPE),
    ],
)
def test_different_launch_finds_no_recording(code: str, shape: Any) -> None:
    with pytest.raises(NotRecordedError, match=r"no recording on H200 .*launches are vector_add"):
        find_same_launch("H200", Launch(KernelSource("vector_add", code), *shape))


@needs_nvrtc
@pytest.mark.parametrize(("option", "fits"), [("-DblockDim=gridDim", False), ("-DUNUSED", True)])
def test_options_matter_only_if_they_change_the_program(option: str, fits: bool) -> None:
    launch = Launch(KernelSource("vector_add", VECTOR_ADD, (option,)), *SHAPE)
    with contextlib.nullcontext() if fits else pytest.raises(NotRecordedError):
        find_same_launch("H200", launch)


def test_identical_source_is_found_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise nvrtc.NvrtcMissingError("none here")

    monkeypatch.setattr(nvrtc, "compile_ptx", none)
    assert find_same_launch("nvidia h200", Launch(KernelSource("vector_add", VECTOR_ADD), *SHAPE))
    with pytest.raises(NotRecordedError):
        find_same_launch("H200", Launch(KernelSource("add", IN_OTHER_WORDS), *SHAPE))


def test_a_gpu_without_records_is_named() -> None:
    with pytest.raises(NotRecordedError, match="There are recordings of NVIDIA H200"):
        find_same_launch("T4", Launch(KernelSource("vector_add", VECTOR_ADD), *SHAPE))


@needs_nvrtc
def test_a_launch_is_compared_with_its_record() -> None:
    session.use_device("virtual:A100")
    cp = gl.cp
    a = cp.ones(N, "float32")
    b = cp.ones(N, "float32")
    c = cp.zeros(N, "float32")
    kernel = cp.RawKernel(IN_OTHER_WORDS, "add")
    chart = gl.launch(kernel, 4096, 256, (a, b, c, np.int32(N)), beside="H200")
    assert chart.trace.provenance.source == "modelled"
    assert chart.other is not None
    assert chart.other.sm_count == 132
    assert "modelled on virtual A100" in repr(chart)
    for text in (repr(chart), chart.caption):
        assert "recorded on NVIDIA H200 (2026-" in text
    assert float(c.sum()) == 2 * N
    c.fill(0)
    with pytest.raises(NotRecordedError, match="on H200 of this launch: add 2,048 × 512"):
        gl.launch(kernel, 2048, 512, (a, b, c, np.int32(N)), beside="H200")
    assert float(c.sum()) == 0, "nothing ran"


def test_a_new_record_replaces_only_those_of_the_same_gpu(tmp_path: Path) -> None:
    trace = recorded.load_record("h200_vector_add_blocks")
    for prefix, titles in (("h200", ("a", "b")), ("t4", ("a",)), ("h200", ("c",))):
        recorder = Recorder(tmp_path, prefix, "2026-01-02", "driver 1")
        for title in titles:
            recorder.keep(title, "blocks", trace, ARGS, KernelSource("vector_add", VECTOR_ADD))
        index = recorder.write_index()
    names = [line.split('"')[3] for line in index.read_text().splitlines() if '"name"' in line]
    assert names == ["t4_a_blocks", "h200_c_blocks"]


@needs_nvrtc
def test_new_recording_is_found_by_its_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Record, index and find launches, with the virtual GPU instead of a real one."""
    session.use_device("virtual:T4")
    args = (np.ones(1000, np.float32), np.ones(1000, np.float32), np.zeros(1000, np.float32), np.int32(1000))
    launch = Launch(KernelSource("vector_add", VECTOR_ADD), (8, 1, 1), (128, 1, 1), args)
    out = Recorder(tmp_path, "t4", "2026-01-02", "driver 1")
    record_blocks([ShownLaunch("small", launch)], out)
    record_warps([find_case("two_ways")], SEED, out)
    out.write_index()
    monkeypatch.setattr(recorded, "_find_folder", lambda: tmp_path)
    load_launch_records.cache_clear()
    try:
        assert [record.name for record in load_launch_records()] == ["t4_small_blocks", "t4_two_ways_warp"]
        trace = find_same_launch("virtual T4", replace(launch, kernel=KernelSource("add", IN_OTHER_WORDS)))
        assert trace.provenance.label.startswith("recorded on virtual T4 (2026-01-02, driver 1")
        assert trace.block_index.size == 8
        assert load_launch_records()[1].trace.block_index == (1, 0, 0)
    finally:
        load_launch_records.cache_clear()


@pytest.mark.slow
def test_the_launches_that_notebooks_show_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launches of the first notebooks, which `gpulab record` repeats on a real GPU."""
    showing = [
        path
        for path in cells.list_notebooks()
        if any("gl.launch(" in cell for cell in cells.read_cells(path))
    ]
    monkeypatch.setattr(traces, "list_notebooks", lambda: showing[:2])
    write_shown_launches(tmp_path / "shown", "some GPU that the table lacks")
    shown = read_shown(tmp_path / "shown")
    launches = [entry.launch for entry in shown]
    assert [launch.source.name for launch in launches].count("vector_add") == 2
    large = next(launch for launch in launches if launch.grid == (4096, 1, 1))
    assert describe_arguments(large.args) == describe_arguments(ARGS)
    assert all(isinstance(launch.args[0], np.ndarray) for launch in launches)
    assert len({entry.title for entry in shown}) == len(shown)


@pytest.mark.parametrize(
    ("read", "name"), [("load_launch_records", "INDEX_FORMAT"), ("load_timeline_records", "TIMELINE_FORMAT")]
)
def test_an_index_of_another_format_is_refused(read: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = getattr(recorded, read)
    before = listed()
    listed.cache_clear()
    monkeypatch.setattr(recorded, name, "another")
    with pytest.raises(ValueError, match=r"\.json does not have the format another"):
        listed()
    monkeypatch.undo()
    assert listed() == before
