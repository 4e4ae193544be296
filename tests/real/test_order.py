"""Which of a real GPU and its twin runs a launch first, and what is copied. With `--fake-gpu` anywhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from gpulab.session import sides
from virtualgpu.backend import VirtualBackend
from virtualgpu.compile import nvrtc
from virtualgpu.protocol import Block, Blocks, Counters, Hazards, Launch
from virtualgpu.records import LaunchTrace

pytestmark = pytest.mark.gpu

# The first element is the number of additions, so a replay with other contents takes another time.
AS_OFTEN = r"""
extern "C" __global__ void as_often(int* x) {
    int turns = x[0];
    __syncthreads();
    for (int i = 0; i < turns; ++i) atomicAdd(&x[threadIdx.x], 1);
}"""


@pytest.fixture(autouse=True)
def on_the_gpu() -> Any:
    pytest.importorskip("cupy")
    assert gl.use_device("auto").kind == "cuda"
    yield
    gl.use_device("auto")


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What ran since, in order: the real GPU, the twin, or a copy of arrays to the twin."""
    from gpulab.real.backend import CudaBackend

    log: list[str] = []

    def note(owner: Any, name: str, entry: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def wrapper(*args: Any, **named: Any) -> Any:
            log.append(entry)
            return original(*args, **named)

        monkeypatch.setattr(owner, name, wrapper)

    note(CudaBackend, "observe", "real")
    note(VirtualBackend, "observe", "twin")
    note(sides.ArgumentCopies, "copy_to", "copied")
    return log


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every launch is too large to be replayed first."""
    monkeypatch.setattr(sides, "MAX_SMALL_THREADS", 0)


def small_launch(turns: int = 5) -> Launch:
    x = gl.cp.full(32, turns, gl.cp.int32)
    return Launch.of(gl.cp.RawKernel(AS_OFTEN, "as_often"), 1, 32, (x,))


def test_a_small_launch_is_replayed_once_before_the_real_gpu_runs_it(events: list[str]) -> None:
    launch = small_launch()
    observed = session.observe(launch, Blocks())
    assert events == ["copied", "twin", "real"]
    assert observed.counterpart is not None
    assert observed.counterpart().provenance.source == "modelled"
    assert events == ["copied", "twin", "real"]
    assert int(launch.args[0][0]) == 10


@pytest.mark.parametrize(
    ("size_bytes", "blocks", "small"),
    [(32 << 20, 1, True), ((32 << 20) + 4, 1, False), (128, 1 << 13, True), (128, (1 << 13) + 1, False)],
)
def test_a_launch_is_small_up_to_32_mib_and_262144_threads(
    size_bytes: int, blocks: int, small: bool, events: list[str]
) -> None:
    x = gl.cp.zeros(size_bytes // 4, gl.cp.int32)
    session.observe(Launch.of(gl.cp.RawKernel(AS_OFTEN, "as_often"), blocks, 32, (x,)), Blocks())
    assert events == (["copied", "twin", "real"] if small else ["real"])


def test_a_replay_is_quick_up_to_256_mib_and_131072_blocks() -> None:
    twin = session.find_twin()
    assert twin is not None
    kernel = gl.cp.RawKernel(AS_OFTEN, "as_often")
    x = gl.cp.zeros(8, gl.cp.int32)
    for args, blocks, quick in (
        ((x,), 1 << 17, True),
        ((x,), (1 << 17) + 1, False),
        ((gl.cp.empty(64 << 20, gl.cp.int32),), 1, True),
        ((gl.cp.empty((64 << 20) + 1, gl.cp.int32),), 1, False),
    ):
        assert sides._Replay(Launch.of(kernel, blocks, 32, args), (Blocks(),), twin).is_quick is quick


@pytest.mark.usefixtures("large")
def test_a_larger_launch_is_measured_before_it_is_replayed(events: list[str]) -> None:
    launch = small_launch()
    observed = session.observe(launch, Blocks())
    assert events == ["real"]
    assert observed.record.provenance.source == "measured"
    assert observed.counterpart is not None
    assert observed.counterpart().provenance.source == "modelled"
    assert events == ["real", "copied", "twin"]


@pytest.mark.usefixtures("large")
def test_prediction_uses_the_arrays_before_the_launch() -> None:
    launch = small_launch(turns=40)
    observed = session.observe(launch, Blocks())
    launch.args[0][...] = 4000
    second = session.observe(launch, Blocks())

    def span_ns(observation: sides.ObservedRecord[LaunchTrace]) -> int:
        assert observation.counterpart is not None
        return int(observation.counterpart().span_ns)

    assert span_ns(second) > 10 * span_ns(observed)


def test_a_launch_too_large_for_the_twin_is_only_measured(
    events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sides, "MAX_SMALL_THREADS", 0)
    monkeypatch.setattr(sides, "MAX_QUICK_THREADS", 31)
    observed = session.observe(small_launch(), Blocks())
    assert observed.counterpart is not None
    assert observed.counterpart() is None
    assert events == ["real"]


def test_a_replay_that_takes_too_long_is_postponed(
    events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sides, "FIRST_REPLAY_S", 1e-6)
    twin = session.find_twin()
    assert twin is not None
    limit_s = twin.machine.current_device.watchdog_s
    observed = session.observe(small_launch(turns=1_500_000), Blocks())
    assert events == ["copied", "twin", "real"]
    assert twin.machine.current_device.watchdog_s == limit_s > 1
    assert observed.counterpart is not None
    assert observed.counterpart() is not None
    assert events == ["copied", "twin", "real", "copied", "twin"]


@pytest.mark.usefixtures("large")
def test_in_a_notebook_the_prediction_comes_after_the_picture(
    events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[Callable[..., Any]] = []
    shell = SimpleNamespace(
        events=SimpleNamespace(
            register=lambda name, work: waiting.append(work),
            unregister=lambda name, work: waiting.remove(work),
        ),
        get_parent=lambda: {"header": {"msg_type": "execute_request", "msg_id": "1"}},
        display_pub=None,
    )
    launch = small_launch()
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: shell)
    chart = gl.launch(launch.kernel, launch.grid, launch.block, launch.args)
    assert chart.trace.provenance.source == "measured"
    assert chart.other is None
    assert events == ["real"]
    waiting[0](None)
    assert chart.other is not None
    assert chart.other.provenance.source == "modelled"
    assert not waiting


def test_kernel_is_compiled_once_for_twin_and_real_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """CuPy's own compilation for the launch is not counted. The disk cache is off.

    Variables of a traced warp come from a debug build, which is another program.
    """
    nowhere = tmp_path / "file"
    nowhere.touch()
    monkeypatch.setenv("GPULAB_CACHE_DIR", str(nowhere))
    compiled = []
    original = nvrtc._compile_now

    def compile_and_log(*args: Any) -> Any:
        compiled.append(args)
        return original(*args)

    monkeypatch.setattr(nvrtc, "_compile_now", compile_and_log)
    fresh = AS_OFTEN + f"// {time.time_ns()}"
    x = gl.cp.ones(32, gl.cp.int32)
    kernel = gl.cp.RawKernel(fresh, "as_often")
    chart = gl.launch(kernel, 1, 32, (x,))
    assert chart.other is not None
    gl.warps(kernel, 1, 32, (x,))
    gl.count(kernel, 1, 32, (x,))
    assert ["-G" in options for _, _, options, *_ in compiled] == [False, True]
    np.testing.assert_array_equal(x.get(), 8)


def test_a_slider_of_a_large_launch_offers_only_smaller_divisors(
    events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other block sizes of a launch that is too large to be tried could end the context."""
    monkeypatch.setattr(sides, "MAX_SMALL_THREADS", 0)
    monkeypatch.setattr(sides, "MAX_QUICK_THREADS", 31)
    x = gl.cp.zeros(1024, gl.cp.int32)
    chart = gl.launch(gl.cp.RawKernel(AS_OFTEN, "as_often"), 4, 256, (x,))
    events.clear()
    for threads in (192, 512, 96):
        chart.block_threads = threads
        assert "only smaller block sizes that divide its 1,024 threads evenly" in chart.error
    assert events == []
    chart.block_threads = 128
    assert chart.error == ""
    assert chart.trace.block == (128, 1, 1)
    assert set(events) == {"real"}


@pytest.mark.parametrize(("watchdog_s", "allowed_s"), [(0.2, 0.2), (60, 0.5)])
def test_first_replay_uses_the_shorter_time_limit(
    watchdog_s: float, allowed_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sides, "FIRST_REPLAY_S", 0.5)
    gl.use_device(watchdog_s=watchdog_s)
    limits_s = []
    observe = VirtualBackend.observe

    def observe_and_log(self: VirtualBackend, *what: Any) -> Any:
        limits_s.append(self.machine.current_device.watchdog_s)
        return observe(self, *what)

    monkeypatch.setattr(VirtualBackend, "observe", observe_and_log)
    session.observe(small_launch(), Blocks())
    assert limits_s == [allowed_s]
    twin = session.find_twin()
    assert twin is not None
    assert twin.machine.current_device.watchdog_s == watchdog_s


def test_several_observations_share_one_launch_on_each_device(events: list[str]) -> None:
    launch = small_launch()
    blocks, counters = session.observe(launch, Blocks(), Counters("warm"))
    assert events == ["copied", "twin", "real"]
    assert int(launch.args[0][0]) == 10
    assert blocks.record.provenance.source == "measured"
    assert counters.record.provenance.source == "modelled"
    assert counters.note
    assert counters.record.caches is not None
    assert blocks.counterpart is not None
    assert blocks.counterpart() == session.observe(small_launch(), Blocks()).counterpart()  # type: ignore[misc]
    assert (
        counters.record.thread_instructions
        == session.observe(small_launch(), Counters()).record.thread_instructions
    )


def test_a_launch_counted_on_the_twin_changes_the_arrays_once(events: list[str]) -> None:
    launch = small_launch()
    session.observe(launch, Counters(), Counters("cold"))
    assert events == ["copied", "twin"]
    assert int(launch.args[0][0]) == 10
    session.observe(launch, Hazards(), Blocks(restore=True))
    assert int(launch.args[0][0]) == 10


def test_two_measurements_of_a_launch_restore_the_arrays_between() -> None:
    launch = small_launch()
    blocks, warp = session.observe(launch, Blocks(), Block())
    assert int(launch.args[0][0]) == 10
    assert warp.counterpart is not None
    assert (blocks.record.provenance, warp.counterpart().provenance) == (session.backend().provenance,) * 2
    assert warp.record.provenance.source == "modelled"


def test_a_cold_launch_is_measured_after_l2_was_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpulab.real import blocks
    from gpulab.real.backend import CudaBackend

    log: list[str] = []
    empty = CudaBackend._empty_l2
    trace = blocks.trace_blocks

    def emptied(backend: CudaBackend) -> None:
        log.append("emptied")
        empty(backend)

    def traced(*args: Any, **named: Any) -> LaunchTrace:
        log.append("measured")
        return trace(*args, **named)

    monkeypatch.setattr(CudaBackend, "_empty_l2", emptied)
    monkeypatch.setattr(blocks, "trace_blocks", traced)
    session.observe(small_launch(), Blocks(), Counters("cold"))
    assert log == ["emptied", "measured"]
    session.observe(small_launch(), Blocks(), Counters("warm"))
    session.observe(small_launch(), Blocks())
    assert log[2:] == ["measured", "measured"]


def test_watch_uses_the_replay_and_its_errors_prevent_the_launch(events: list[str]) -> None:
    x = gl.cp.full(32, 3, gl.cp.int32)
    kernel = gl.cp.RawKernel(AS_OFTEN, "as_often")
    with pytest.raises(gl.errors.GpulabError, match=r"has no variable `turn`\. Did you mean .turns.\?"):
        gl.warps(kernel, 1, 32, (x,), watch="turn")
    assert "real" not in events
    view = gl.warps(kernel, 1, 32, (x,), watch="turns", stop="write x[5]")
    np.testing.assert_array_equal(x.get(), 6)
    assert [watched.value[-1].tolist() for watched in view.trace.watched] == [[3] * 32]
    assert set(view.trace.stops[0].lanes.tolist()) == {1 << 5}


def test_watch_records_no_values_without_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sides, "MAX_SMALL_THREADS", 0)
    monkeypatch.setattr(sides, "MAX_QUICK_THREADS", 31)
    x = gl.cp.ones(32, gl.cp.int32)
    view = gl.warps(gl.cp.RawKernel(AS_OFTEN, "as_often"), 1, 32, (x,), watch="turns", stop="line 4")
    assert view.trace.granularity == "basic block"
    assert "No values were recorded for `watch`" in view.describe()
