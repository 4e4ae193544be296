"""The result of `gl.launch`: questions about the launch, each from the arrays as they were; streams."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from gpulab.lab.run import Run
from gpulab.session import current, kept
from gpulab.views import LaunchChart
from virtualgpu.compile import sass
from virtualgpu.errors import ArgumentWarning, GpulabError

# Only elements below 100 are doubled: at the second run over the same array none is stored.
CODE = r"""
extern "C" __global__ void doubled(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] < 100) x[i] *= 2;
}"""
N = 1000

QUESTIONS: dict[str, tuple[dict[str, Any], Callable[[Any], object]]] = {
    "warps": ({"block_index": 3, "warp": 7}, lambda view: view.trace.executed_mask.tolist()),
    "count": ({"caches": "warm"}, lambda table: table.total("requests", "global", "store")),
    "access": (
        {"line": 4, "block_index": 1},
        lambda view: [a.requests for a in view.record.counters.accesses],
    ),
    "sanitize": (
        {"tools": ("race",), "block_order": "reversed"},
        lambda table: (table.clean, table.block_order),
    ),
    "diagnose": ({}, lambda table: [sentence.split(",")[0] for sentence in table.sentences()]),
    "roofline": ({}, lambda chart: [point.name for point in chart.record.points]),
}


@pytest.fixture(autouse=True)
def device() -> None:
    session.use_device("virtual:T4")


def described(value: float = 60) -> tuple[Any, ...]:
    cp = gl.cp
    return cp.RawKernel(CODE, "doubled"), 4, 256, (cp.full(N, value, cp.float32), np.int32(N))


def stores(table: Any) -> int:
    return int(table.total("requests", "global", "store"))


def test_query_starts_from_initial_arrays_and_changes_nothing() -> None:
    launch = described()
    run = gl.launch(*launch)
    assert isinstance(run, Run)
    assert isinstance(run, LaunchChart)
    assert float(launch[3][0][0]) == 120, "the kernel has run"
    launch[3][0][0] = 7
    assert [stores(run.count()) for _ in range(2)] == [32, 32]
    assert launch[3][0].get().tolist() == [7, *[120] * (N - 1)]
    assert stores(gl.count(*launch)) == 1, "the function starts from the arrays as they are"


@pytest.mark.parametrize("name", QUESTIONS)
def test_run_methods_equal_the_functions_before_the_launch(name: str) -> None:
    options, value = QUESTIONS[name]
    first = described()
    expected = gl.roofline(first) if name == "roofline" else getattr(gl, name)(*first, **options)
    launch = described()
    run = gl.launch(*launch)
    answer = getattr(run, name)(**options)
    assert value(answer) == value(expected)
    assert set(launch[3][0].get().tolist()) == {120.0}


def test_run_is_accepted_by_roofline_and_as_a_baseline() -> None:
    run = gl.launch(*described())
    chart = gl.roofline(run, (*described(),), run)
    assert [point.name for point in chart.record.points] == ["doubled 1", "doubled 2", "doubled 3"]
    first, *others = (point.flops for point in chart.record.points)
    assert others == [first] * 2
    table = run.diagnose(baseline=run)
    assert table.baseline is not None
    assert table.baseline.stages == table.stages


def test_overlapping_and_strided_arrays_are_restored() -> None:
    cp = gl.cp
    whole = cp.arange(64, dtype=cp.float32)
    code = 'extern "C" __global__ void k(float* a, float* b) { a[threadIdx.x] += 1; b[threadIdx.x] += 1; }'
    with pytest.warns(ArgumentWarning):  # of the strides
        run = gl.launch(cp.RawKernel(code, "k"), 1, 16, (whole[8:40], whole[20:60:2]))
    after = whole.get()
    with run.kept_launch.with_initial_contents() as launch:
        assert whole.get().tolist() == list(range(64))
        assert launch.args[0].data.ptr == whole[8:40].data.ptr
    assert np.array_equal(whole.get(), after)


def test_arrays_are_restored_after_a_fault() -> None:
    code = r"""extern "C" __global__ void k(int* x) {
        if (x[threadIdx.x] == 5) x[1 << 20] = 1;
        x[threadIdx.x] = threadIdx.x;
    }"""
    x = gl.cp.zeros(32, np.int32)
    run = gl.launch(gl.cp.RawKernel(code, "k"), 1, 32, (x,))
    x.fill(5)
    assert run.sanitize().clean
    assert set(x.get().tolist()) == {5}


def test_copies_are_bounded_and_the_oldest_are_deleted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MAX_KEPT_BYTES", 2 * 4 * N)
    launches = [described() for _ in range(4)]
    runs = [gl.launch(*launch) for launch in launches[:3]]
    with pytest.raises(
        GpulabError, match=r"copies of this launch's arrays have been deleted, .* Run the cell"
    ):
        runs[0].count()
    assert [stores(run.count()) for run in runs[1:]] == [32, 32]
    del runs[1]
    gc.collect()
    runs.append(gl.launch(*launches[3]))
    assert stores(runs[1].count()) == 32, "copies of a run that is gone do not count"
    monkeypatch.setattr(kept, "MAX_KEPT_BYTES", 4 * N - 1)
    large = gl.launch(*launches[3])
    with pytest.raises(GpulabError, match=r"take 3.91 KiB, and gpulab copies at most .* gl.count\(kernel"):
        large.count()


def test_a_closed_view_frees_its_copies() -> None:
    launch = described()
    run = gl.launch(*launch)
    run.close()
    assert run.kept_launch.contents.saved_arrays is None
    with pytest.raises(GpulabError, match="deleted"):
        run.count()


def test_arrays_are_not_kept_alive_and_belong_to_their_device() -> None:
    run = gl.launch(*described())
    current._find_session().recent_arrays.clear()
    gc.collect()
    with pytest.raises(GpulabError, match="arrays of this launch have been freed"):
        run.count()
    launch = described()
    run = gl.launch(*launch)
    session.use_device("virtual:A100")
    with pytest.raises(GpulabError, match="another device has been selected"):
        run.count()


def test_copies_do_not_show_in_a_timeline() -> None:
    with gl.timeline() as line:
        gl.launch(*described()).count()
    kinds = [activity.kind for activity in line.record.activities if activity.kind != "MEMSET"]
    assert kinds[-2:] == ["CONCURRENT_KERNEL"] * 2
    assert "MEMCPY" not in kinds


# -- streams ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*QUESTIONS, "launch", "machine_code"])
def test_a_kernel_runs_in_the_stream_that_is_passed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "machine_code" and not sass.is_available():
        pytest.skip("needs nvdisasm")
    stream = gl.cp.cuda.Stream(non_blocking=True)
    launch = described()
    streams: set[int] = set()
    observe = type(session.backend()).observe

    def observed(*args: Any) -> Any:
        streams.add(gl.cp.cuda.get_current_stream().ptr)
        return observe(*args)

    monkeypatch.setattr(type(session.backend()), "observe", observed)
    with gl.timeline() as line:
        if name == "roofline":
            gl.roofline(
                {**dict(zip(("kernel", "grid", "block", "args"), launch, strict=True)), "stream": stream}
            )
        else:
            getattr(gl, name)(*launch, stream=stream)
    assert streams == {stream.ptr}
    kernels = {activity.stream_id for activity in line.record.activities if activity.name == "doubled"}
    assert kernels == (set() if name == "sanitize" else {stream.ptr}), "a check takes no modelled time"


def test_query_runs_in_the_stream_of_its_launch() -> None:
    stream = gl.cp.cuda.Stream()
    launch = described()
    run = gl.launch(*launch, stream=stream)
    with gl.timeline() as line:
        run.count()
    assert [activity.stream_id for activity in line.record.activities] == [stream.ptr]


def test_stream_argument_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match=r"`stream` must be a stream, such as cp.cuda.Stream\(\), not int"):
        gl.launch(*described(), stream=3)
