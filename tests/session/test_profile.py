"""``gl.profile`` and ``%%gpu_profile``: what a learner types, on a virtual GPU."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

import gpulab as gl
from gpulab import session
from gpulab.lab.profiling.profile import ProfileReport, ProfilerInUseError
from tests.session.notebooks import run
from virtualgpu.errors import GpulabError

N = 1 << 16
SOURCE = r"""
extern "C" __global__ void axpy(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += 2.0f * x[i];
}
extern "C" __global__ void tiled(float* y) {
    __shared__ float tile[12288];
    tile[threadIdx.x] = y[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = tile[(threadIdx.x + 1) % blockDim.x];
}
"""


@pytest.fixture(autouse=True)
def virtual() -> None:
    gl.use_device("virtual:A100")


@pytest.fixture
def program() -> Any:
    cp = gl.cp
    module = cp.RawModule(code=SOURCE)
    axpy = module.get_function("axpy")
    tiled = module.get_function("tiled")
    x = cp.ones(N, cp.float32)
    y = cp.zeros(N, cp.float32)

    def program(times: int = 3, threads: int = 256) -> Any:
        with gl.cupyx.profiler.time_range("layer 1"):
            for _ in range(times):
                axpy((N // threads,), (threads,), (x, y, np.int32(N)))
        with gl.cupyx.profiler.time_range("layer 2"):
            tiled((1,), (128,), (y,))
            z = x * 2
        return float(z[0]), y.get()

    return program


def test_kernels_have_what_was_counted_and_what_the_timeline_has(program: Any) -> None:
    p = gl.profile(program)
    record = p.record
    ran = p.timeline.record.activities
    axpy = record.kernel("axpy")
    assert axpy.count == 3
    assert axpy.device_time_total_ns == sum(a.duration_ns for a in ran if a.name == "axpy")
    # Two arrays read, one written; one multiply-add an element.
    assert axpy.moved_bytes == pytest.approx(3 * 3 * 4 * N, rel=1e-3)
    assert axpy.flop == 3 * 2 * N
    assert axpy.gb_per_s == axpy.moved_bytes / axpy.device_time_total_ns
    assert record.kernel("tiled").count == 1
    assert record.wall_ns == p.timeline.record.duration_ns
    assert sum(copy.count for copy in record.copies) == 2
    assert record.peak_bytes is not None
    assert record.before_bytes is not None
    assert record.peak_bytes - record.before_bytes == 4 * N  # z
    with pytest.raises(KeyError, match="'axpi' did not run; "):
        record.kernel("axpi")


def test_occupancy_is_that_of_gl_occupancy_static_shared_memory_included(program: Any) -> None:
    cp = gl.cp
    record = gl.profile(program, 1, 64).record
    module = cp.RawModule(code=SOURCE)
    for name, threads in (("axpy", 64), ("tiled", 128)):
        chart = gl.occupancy(module.get_function(name), threads)
        (right,) = (each.fraction for each in chart.record if each.block_threads == threads)
        assert record.kernel(name).occupancy == pytest.approx(right), name
    assert (record.kernel("tiled").occupancy or 1) < 0.5  # held by its shared memory


def test_time_in_a_layer_is_that_of_the_kernels_given_in_it(program: Any) -> None:
    record = gl.profile(program).record
    ranges = {each.key: each for each in record.ranges}
    assert ranges["layer 1"].device_time_total_ns == record.kernel("axpy").device_time_total_ns
    others = sum(k.device_time_total_ns for k in record.kernels if k.key != "axpy")
    assert ranges["layer 2"].device_time_total_ns == others
    assert ranges["layer 2"].operations == 2


def test_a_graphs_kernels_are_counted_at_each_launch(program: Any) -> None:
    cp = gl.cp
    axpy = cp.RawModule(code=SOURCE).get_function("axpy")
    x = cp.ones(N, cp.float32)
    y = cp.zeros(N, cp.float32)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        axpy((N // 256,), (256,), (x, y, np.int32(N)))
        graph = stream.end_capture()
    with gl.profile() as p:
        graph.launch(stream)
        graph.launch(stream)
        stream.synchronize()
    assert p.record.kernel("axpy").count == 2
    assert p.record.kernel("axpy").flop == 2 * 2 * N
    assert p.record.kernel("axpy").occupancy == 1.0


def test_it_reads_as_tables_with_pytorchs_names_and_the_origin(program: Any) -> None:
    p = gl.profile(program, record_shapes=True)
    text = p.describe()
    for words in (
        "key",
        "count",
        "device_time_total",
        "of wall",
        "occupancy",
        "GFLOP/s",
        "layer 2",
        "256 × 256",
        "memcpy DtoH, pageable",
        "hidden: the line asks for none",
        "test_profile.py, line",
        "The memory pool held",
        "modelled on virtual A100",
    ):
        assert words in text, words
    assert repr(p).startswith("Profile of program: ")
    assert repr(p).endswith("; modelled on virtual A100-SXM4-80GB.")
    bundle, _ = p._repr_mimebundle_() or ({}, {})
    assert "<table" in bundle["text/html"]


def test_a_warm_up_runs_unseen_and_what_is_given_to_the_function_arrives(program: Any) -> None:
    calls: list[tuple[int, ...]] = []

    def fn(*given: int) -> None:
        calls.append(given)
        program(1)

    assert gl.profile(fn, 1, 2, warmup=2).record.kernel("axpy").count == 1
    assert calls == [(1, 2)] * 3


def test_two_profiles_side_by_side(program: Any) -> None:
    before = gl.profile(program, 4)
    after = gl.profile(program, 1)
    both = before.compare(after)
    row = next(row for row in both.table().rows if row[0] == "axpy")
    assert row[2:4] == (4, 1)
    first, second = (each.record.kernel("axpy").device_time_total_ns for each in (before, after))
    assert row[6:] == (second - first, first / second)
    cells = next(row for row in both.table().cells if row[0] == "axpy")
    assert cells[7] == f"{first / second:.3g} ×"
    assert cells[6].startswith("−")
    assert both.table().rows == before.compare(after.record).table().rows
    assert "then program" in repr(both)
    with pytest.raises(TypeError, match="not int"):
        before.compare(3)  # type: ignore[arg-type]


def test_it_is_saved(program: Any, tmp_path: Path) -> None:
    p = gl.profile(program)
    assert json.loads(p.save(tmp_path / "p.json").read_text("utf-8"))["kernels"][0]["key"]
    page = p.save(tmp_path / "p.html").read_text("utf-8")
    assert "device_time_total" in page.replace("<wbr>", "")  # where a long heading may break
    assert p.save(tmp_path / "p.txt").read_text("utf-8").strip() == p.describe()


def test_an_error_ends_the_recording_and_passes(program: Any) -> None:
    def fails() -> None:
        program(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        gl.profile(fails)
    assert gl.profile(program).record.kernels


def test_what_cannot_be_profiled_is_refused(program: Any) -> None:
    with pytest.raises(TypeError, match="not int"):
        gl.profile(3)  # type: ignore[arg-type]
    with pytest.raises(GpulabError, match="ended"):
        gl.profile().record  # noqa: B018
    with pytest.raises(GpulabError, match="has no timeline"):
        ProfileReport(gl.profile(program).record).timeline  # noqa: B018
    with gl.timeline(), pytest.raises(GpulabError, match="do not nest"):
        gl.profile(program)
    with gl.profile() as nothing:
        pass
    assert nothing.record.kernels == ()
    assert "0 launches" in repr(nothing)


def test_the_magic_profiles_its_cell(jupyter: NotebookClient) -> None:
    run(jupyter, "import gpulab as gl\nfrom gpulab import cp\nx = cp.zeros(8)")
    assert "Kernels" in str(run(jupyter, "%%gpu_profile -o p\nx.fill(1)\ny = float(x[0])"))
    lines = run(jupyter, "print([str(line.source) for line in p.record.lines])")
    assert "cell [2], line 2" in str(lines)
    with pytest.raises(CellExecutionError, match="takes the name"):
        run(jupyter, "%%gpu_profile a b\nx.fill(2)")


class Watcher:
    """A recorder of timelines that is made up: it notes when it begins and ends, and may see nothing."""

    def __init__(self, said: list[str], blind: str, record: Any) -> None:
        self.said = said
        self.blind = blind
        self.result = record

    def start(self) -> None:
        self.said.append("start")

    def stop(self) -> Any:
        self.said.append("stop")
        return self.result


@pytest.fixture
def watched(program: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let `Watcher` record; give it why it is blind, and the pool's bytes."""
    real = gl.profile(program).timeline.record
    backend = session.backend()

    def watch(said: list[str], blind: str = "", used_bytes: int | None = 1000) -> None:
        made = SimpleNamespace(
            provenance=backend.provenance,
            timeline_recorder=lambda: Watcher(said, blind, real),
            memory_reader=lambda: lambda: SimpleNamespace(used_bytes=used_bytes),
        )
        monkeypatch.setattr(session, "backend", lambda: made)

    return watch


@pytest.mark.parametrize(
    ("why", "kind"),
    [
        ("it is in use by another tool", ProfilerInUseError),
        ("there is no CUPTI on this machine", GpulabError),
    ],
)
def test_where_kernels_cannot_be_seen_nothing_runs_and_the_remedy_is_said(
    why: str, kind: type[Exception], watched: Any
) -> None:
    said: list[str] = []
    calls: list[int] = []
    watched(said, blind=why)
    with pytest.raises(GpulabError) as told:
        gl.profile(lambda: calls.append(1))
    assert type(told.value) is kind
    assert str(told.value) == (
        f"A profile needs CUPTI to see kernels and copies, and {why}. End the other tool's session first; "
        "gl.timeline() goes without, and sees what NVTX ranges hold."
    )
    assert (said, calls) == (["start", "stop"], [])
    assert gl.cp.cuda.memory_hook.get_memory_hooks() == {}


def test_the_pools_peak_is_told_where_the_pool_tells_what_it_held(watched: Any) -> None:
    said: list[str] = []
    watched(said)

    def allocates() -> None:
        said.append("runs")
        first = gl.cp.empty(1024, "u1")
        second = gl.cp.empty(512, "u1")
        del first, second
        gl.cp.empty(1024, "u1")

    # A collection during the profile would free arrays of earlier tests and lower its peak.
    gc.collect()
    record = gl.profile(allocates).record
    assert said == ["start", "runs", "stop"]
    assert (record.before_bytes, record.peak_bytes) == (1000, 1000 + 1536)
    assert gl.cp.cuda.memory_hook.get_memory_hooks() == {}  # nobody looks on any more
    watched(said, used_bytes=None)
    record = gl.profile(allocates).record
    assert (record.before_bytes, record.peak_bytes) == (None, None)


def test_what_a_warm_up_left_running_is_waited_for() -> None:
    x = gl.cp.ones(1 << 22, "f4")

    def given() -> None:
        for _ in range(8):
            x.sum()

    given()
    gl.cp.cuda.Device().synchronize()
    alone = gl.profile(given).record
    warm = gl.profile(given, warmup=5).record
    assert warm.wall_ns < 1.5 * alone.wall_ns
    assert warm.busy_ns == alone.busy_ns
    assert not any(each.count for each in warm.waits) or warm.waits == alone.waits


def test_a_function_runs_once_and_shapes_are_told_apart_where_asked(program: Any) -> None:
    calls: list[int] = []

    def twice() -> None:
        calls.append(1)
        gl.cp.zeros(512, "f4")

    plain = gl.profile(twice)
    assert calls == [1]
    program(1, 64)

    def two_shapes() -> None:
        program(1, 64)
        program(1, 256)

    for how, counts in (({}, [2]), ({"record_shapes": False}, [2]), ({"record_shapes": True}, [1, 1])):
        assert [k.count for k in gl.profile(two_shapes, **how).record.kernels if k.key == "axpy"] == counts  # type: ignore[arg-type]
    with gl.profile(record_shapes=True) as block:
        two_shapes()
    assert [k.count for k in block.record.kernels if k.key == "axpy"] == [1, 1]
    assert block.record.name == "block"
    assert ProfileReport(plain.record).name == "twice"
    assert gl.profile(program).record.no_counters == ""  # nobody asked for any


def test_what_has_no_name_is_called_by_its_kind() -> None:
    class Model:
        def __call__(self) -> None:
            gl.cp.zeros(4)

    assert gl.profile(Model()).record.name == "Model"
    with pytest.raises(GpulabError, match="it is there when the block has ended"):
        gl.profile().timeline  # noqa: B018
    started = gl.profile()
    with started, pytest.raises(GpulabError, match="it is there when the block has ended"):
        started.timeline  # noqa: B018
    assert started.timeline.record.activities == ()
    with pytest.raises(TypeError, match=r"A profile is what gl\.profile\(\) gives, not str"):
        started.compare("x")  # type: ignore[arg-type]
