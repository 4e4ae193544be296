"""``gl.profile``: what a learner types, on a virtual GPU."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from gpulab.lab.profiling.profile import ProfileReport, ProfilerInUseError
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


def test_kernels_have_counts_and_the_times_of_the_timeline(program: Any) -> None:
    p = gl.profile(program)
    record = p.record
    axpy = record.kernel("axpy")
    assert axpy.count == 3
    activities = p.timeline.record.activities
    assert axpy.device_time_total_ns == sum(a.duration_ns for a in activities if a.name == "axpy")
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
    with pytest.raises(KeyError, match="'axpi' did not run"):
        record.kernel("axpi")


def test_occupancy_is_that_of_gl_occupancy_static_shared_memory_included(program: Any) -> None:
    record = gl.profile(program, 1, 64).record
    module = gl.cp.RawModule(code=SOURCE)
    for name, threads in (("axpy", 64), ("tiled", 128)):
        chart = gl.occupancy(module.get_function(name), threads)
        (expected,) = (point.fraction for point in chart.record if point.block_threads == threads)
        assert record.kernel(name).occupancy == pytest.approx(expected), name
    assert (record.kernel("tiled").occupancy or 1) < 0.5  # limited by its shared memory


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


def test_a_warm_up_is_not_counted_and_arguments_are_passed_on(program: Any) -> None:
    calls: list[tuple[int, ...]] = []

    def fn(*args: int) -> None:
        calls.append(args)
        program(1)

    assert gl.profile(fn, 1, 2).record.kernel("axpy").count == 1
    assert calls == [(1, 2)]
    assert gl.profile(fn, 1, 2, warmup=2).record.kernel("axpy").count == 1
    assert calls == [(1, 2)] * 4


def test_two_profiles_are_compared(program: Any) -> None:
    before = gl.profile(program, 4)
    after = gl.profile(program, 1)
    comparison = before.compare(after)
    row = next(row for row in comparison.table().rows if row[0] == "axpy")
    assert row[2:4] == (4, 1)
    first, second = (p.record.kernel("axpy").device_time_total_ns for p in (before, after))
    assert row[6:] == (second - first, first / second)
    cells = next(row for row in comparison.table().cells if row[0] == "axpy")
    assert cells[7] == f"{first / second:.3g} ×"
    assert cells[6].startswith("−")
    assert comparison.table().rows == before.compare(after.record).table().rows
    with pytest.raises(TypeError, match=r"Expected a profile, the result of gl\.profile\(\), not int"):
        before.compare(3)  # type: ignore[arg-type]


def test_error_in_the_function_propagates_and_ends_recording(program: Any) -> None:
    def fails() -> None:
        program(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        gl.profile(fails)
    assert gl.profile(program).record.kernels


def test_wrong_uses_are_named(program: Any) -> None:
    with pytest.raises(TypeError, match="not int"):
        gl.profile(3)  # type: ignore[arg-type]
    with pytest.raises(GpulabError, match="ended"):
        gl.profile().record  # noqa: B018
    with gl.profile() as nothing, pytest.raises(GpulabError, match="available when the block has ended"):
        nothing.timeline  # noqa: B018
    assert nothing.timeline.record.activities == nothing.record.kernels == ()
    assert "0 launches" in repr(nothing)
    with pytest.raises(GpulabError, match="has no timeline"):
        ProfileReport(gl.profile(program).record).timeline  # noqa: B018
    with gl.timeline(), pytest.raises(GpulabError, match="cannot be nested"):
        gl.profile(program)


class Watcher:
    """A timeline recorder that notes its start and stop, with a reason if it cannot record."""

    def __init__(self, steps: list[str], blind: str, record: Any) -> None:
        self.steps = steps
        self.blind_reason = blind
        self.result = record

    def start(self) -> None:
        self.steps.append("start")

    def stop(self) -> Any:
        self.steps.append("stop")
        return self.result


@pytest.fixture
def watched(program: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace the recorder by a `Watcher`, and the pool's bytes by a constant."""
    record = gl.profile(program).timeline.record
    provenance = session.backend().provenance

    def watch(steps: list[str], blind: str = "", used_bytes: int | None = 1000) -> None:
        backend = SimpleNamespace(
            provenance=provenance,
            timeline_recorder=lambda: Watcher(steps, blind, record),
            memory_reader=lambda: lambda: SimpleNamespace(used_bytes=used_bytes),
        )
        monkeypatch.setattr(session, "backend", lambda: backend)

    return watch


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("it is in use by another tool", ProfilerInUseError),
        ("there is no CUPTI on this machine", GpulabError),
    ],
)
def test_a_function_does_not_run_if_kernels_cannot_be_recorded(
    reason: str, kind: type[Exception], watched: Any
) -> None:
    steps: list[str] = []
    calls: list[int] = []
    watched(steps, blind=reason)
    with pytest.raises(GpulabError, match=rf"CUPTI.*{reason}.*gl\.timeline\(\)") as error:
        gl.profile(lambda: calls.append(1))
    assert type(error.value) is kind
    assert (steps, calls) == (["start", "stop"], [])
    assert gl.cp.cuda.memory_hook.get_memory_hooks() == {}


def test_peak_of_the_pool_is_known_only_if_its_use_is_known(watched: Any) -> None:
    steps: list[str] = []
    watched(steps)

    def allocates() -> None:
        steps.append("runs")
        first = gl.cp.empty(1024, "u1")
        second = gl.cp.empty(512, "u1")
        del first, second
        gl.cp.empty(1024, "u1")

    # A collection during the profile would free arrays of earlier tests and lower its peak.
    gc.collect()
    record = gl.profile(allocates).record
    assert steps == ["start", "runs", "stop"]
    assert (record.before_bytes, record.peak_bytes) == (1000, 1000 + 1536)
    assert gl.cp.cuda.memory_hook.get_memory_hooks() == {}
    watched(steps, used_bytes=None)
    record = gl.profile(allocates).record
    assert (record.before_bytes, record.peak_bytes) == (None, None)


def test_the_work_of_a_warm_up_ends_before_the_profile() -> None:
    x = gl.cp.ones(1 << 22, "f4")

    def work() -> None:
        for _ in range(8):
            x.sum()

    work()
    gl.cp.cuda.Device().synchronize()
    alone = gl.profile(work).record
    warm = gl.profile(work, warmup=5).record
    assert warm.wall_ns < 1.5 * alone.wall_ns
    assert warm.busy_ns == alone.busy_ns
    assert not any(wait.count for wait in warm.waits) or warm.waits == alone.waits


def test_shapes_are_separate_rows_if_they_are_recorded(program: Any) -> None:
    def two_shapes() -> None:
        program(1, 64)
        program(1, 256)

    def counts(record: Any) -> list[int]:
        return [kernel.count for kernel in record.kernels if kernel.key == "axpy"]

    two_shapes()
    assert counts(gl.profile(two_shapes).record) == [2]
    assert counts(gl.profile(two_shapes, record_shapes=True).record) == [1, 1]
    with gl.profile(record_shapes=True) as block:
        two_shapes()
    assert counts(block.record) == [1, 1]
