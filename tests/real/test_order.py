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

# As many additions as the first element says, so that a replay over other contents takes other times.
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

    seen: list[str] = []

    def note(owner: Any, name: str, what: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def noted(*args: Any, **named: Any) -> Any:
            seen.append(what)
            return original(*args, **named)

        monkeypatch.setattr(owner, name, noted)

    note(CudaBackend, "observe", "real")
    note(VirtualBackend, "observe", "twin")
    note(sides.Copies, "on", "copied")
    return seen


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every launch is too large to be replayed first."""
    monkeypatch.setattr(sides, "SMALL_THREADS", 0)


def asked(turns: int = 5) -> Launch:
    x = gl.cp.full(32, turns, gl.cp.int32)
    return Launch.of(gl.cp.RawKernel(AS_OFTEN, "as_often"), 1, 32, (x,))


def test_a_small_launch_is_replayed_once_before_the_real_gpu_runs_it(events: list[str]) -> None:
    launch = asked()
    seen = session.observe(launch, Blocks())
    assert events == ["copied", "twin", "real"]
    assert seen.counterpart is not None
    assert seen.counterpart().provenance.source == "modelled"
    assert events == ["copied", "twin", "real"]
    assert int(launch.args[0][0]) == 10


@pytest.mark.parametrize(
    ("size_bytes", "blocks", "small"),
    [(32 << 20, 1, True), ((32 << 20) + 4, 1, False), (128, 1 << 13, True), (128, (1 << 13) + 1, False)],
)
def test_small_are_up_to_32_mib_and_a_quarter_of_a_million_threads(
    size_bytes: int, blocks: int, small: bool, events: list[str]
) -> None:
    x = gl.cp.zeros(size_bytes // 4, gl.cp.int32)
    session.observe(Launch.of(gl.cp.RawKernel(AS_OFTEN, "as_often"), blocks, 32, (x,)), Blocks())
    assert events == (["copied", "twin", "real"] if small else ["real"])


def test_what_takes_moments_is_replayed_when_it_is_asked_for() -> None:
    twin = session.twin()
    assert twin is not None
    kernel = gl.cp.RawKernel(AS_OFTEN, "as_often")
    x = gl.cp.zeros(8, gl.cp.int32)
    for args, blocks, quick in (
        ((x,), 1 << 17, True),
        ((x,), (1 << 17) + 1, False),
        ((gl.cp.empty(64 << 20, gl.cp.int32),), 1, True),
        ((gl.cp.empty((64 << 20) + 1, gl.cp.int32),), 1, False),
    ):
        assert sides._Replay(Launch.of(kernel, blocks, 32, args), (Blocks(),), twin).quick is quick


@pytest.mark.usefixtures("large")
def test_a_larger_launch_is_measured_first_and_nothing_goes_to_the_host(events: list[str]) -> None:
    launch = asked()
    seen = session.observe(launch, Blocks())
    assert events == ["real"]
    assert seen.record.provenance.source == "measured"
    assert seen.counterpart is not None
    assert seen.counterpart().provenance.source == "modelled"
    assert events == ["real", "copied", "twin"]


@pytest.mark.usefixtures("large")
def test_the_prediction_is_of_the_arrays_as_they_were() -> None:
    launch = asked(turns=40)
    seen = session.observe(launch, Blocks())
    launch.args[0][...] = 4000
    again = session.observe(launch, Blocks())

    def span_ns(one: sides.Observed[LaunchTrace]) -> int:
        assert one.counterpart is not None
        return int(one.counterpart().span_ns)

    assert span_ns(again) > 10 * span_ns(seen)


def test_a_launch_too_large_for_the_twin_is_only_measured(
    events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sides, "SMALL_THREADS", 0)
    monkeypatch.setattr(sides, "QUICK_THREADS", 31)
    seen = session.observe(asked(), Blocks())
    assert seen.counterpart is not None
    assert seen.counterpart() is None
    assert events == ["real"]


def test_a_replay_that_takes_too_long_gives_way_and_comes_later(
    events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sides, "FIRST_S", 1e-6)
    twin = session.twin()
    assert twin is not None
    before = twin.machine.current_device.watchdog_s
    seen = session.observe(asked(turns=1_500_000), Blocks())
    assert events == ["copied", "twin", "real"]
    assert twin.machine.current_device.watchdog_s == before > 1
    assert seen.counterpart is not None
    assert seen.counterpart() is not None
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
    launch = asked()
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: shell)
    chart = gl.launch(launch.kernel, launch.grid, launch.block, launch.args)
    assert chart.trace.provenance.source == "measured"
    assert chart.other is None
    assert events == ["real"]
    waiting[0](None)
    assert chart.other is not None
    assert chart.other.provenance.source == "modelled"
    assert not waiting


def test_a_kernel_is_compiled_once_for_both_sides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Beside CuPy's own compilation, which makes the function that is launched; also without a disk cache.

    Variables of a traced warp come from a debug build, which is another program.
    """
    nowhere = tmp_path / "file"
    nowhere.touch()
    monkeypatch.setenv("GPULAB_CACHE_DIR", str(nowhere))
    compiled = []
    original = nvrtc._compile_now

    def noted(*args: Any) -> Any:
        compiled.append(args)
        return original(*args)

    monkeypatch.setattr(nvrtc, "_compile_now", noted)
    fresh = AS_OFTEN + f"// {time.time_ns()}"
    x = gl.cp.ones(32, gl.cp.int32)
    kernel = gl.cp.RawKernel(fresh, "as_often")
    chart = gl.launch(kernel, 1, 32, (x,))
    assert chart.other is not None
    gl.warps(kernel, 1, 32, (x,))
    gl.count(kernel, 1, 32, (x,))
    assert ["-G" in options for _, _, options, *_ in compiled] == [False, True]
    np.testing.assert_array_equal(x.get(), 8)


def test_a_slider_runs_untried_only_smaller_blocks_that_divide_the_launch(
    events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other block sizes of a launch that is too large to be tried could end the context."""
    monkeypatch.setattr(sides, "SMALL_THREADS", 0)
    monkeypatch.setattr(sides, "QUICK_THREADS", 31)
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
def test_a_first_replay_keeps_to_the_shorter_of_two_limits(
    watchdog_s: float, allowed_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sides, "FIRST_S", 0.5)
    gl.use_device(watchdog_s=watchdog_s)
    seen = []
    observe = VirtualBackend.observe

    def noted(self: VirtualBackend, *what: Any) -> Any:
        seen.append(self.machine.current_device.watchdog_s)
        return observe(self, *what)

    monkeypatch.setattr(VirtualBackend, "observe", noted)
    session.observe(asked(), Blocks())
    assert seen == [allowed_s]
    twin = session.twin()
    assert twin is not None
    assert twin.machine.current_device.watchdog_s == watchdog_s


def test_several_observations_are_one_launch_on_either_side(events: list[str]) -> None:
    launch = asked()
    blocks, counters = session.observe(launch, Blocks(), Counters("warm"))
    assert events == ["copied", "twin", "real"]
    assert int(launch.args[0][0]) == 10
    assert blocks.record.provenance.source == "measured"
    assert counters.record.provenance.source == "modelled"
    assert counters.note
    assert counters.record.caches is not None
    assert blocks.counterpart is not None
    assert blocks.counterpart() == session.observe(asked(), Blocks()).counterpart()  # type: ignore[misc]
    assert (
        counters.record.thread_instructions == session.observe(asked(), Counters()).record.thread_instructions
    )


def test_what_only_the_twin_tells_still_runs_on_the_real_gpu_once(events: list[str]) -> None:
    launch = asked()
    session.observe(launch, Counters(), Counters("cold"))
    assert events == ["copied", "twin"]
    assert int(launch.args[0][0]) == 10
    session.observe(launch, Hazards(), Blocks(restore=True))
    assert int(launch.args[0][0]) == 10


def test_a_gpu_repeats_what_it_can_only_show_apart() -> None:
    launch = asked()
    blocks, warp = session.observe(launch, Blocks(), Block())
    assert int(launch.args[0][0]) == 10
    assert warp.counterpart is not None
    assert (blocks.record.provenance, warp.counterpart().provenance) == (session.backend().provenance,) * 2
    assert warp.record.provenance.source == "modelled"


def test_a_cold_launch_is_measured_after_l2_was_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpulab.real import blocks
    from gpulab.real.backend import CudaBackend

    seen: list[str] = []
    empty = CudaBackend._empty_l2
    trace = blocks.trace_blocks

    def emptied(backend: CudaBackend) -> None:
        seen.append("emptied")
        empty(backend)

    def traced(*args: Any, **named: Any) -> LaunchTrace:
        seen.append("measured")
        return trace(*args, **named)

    monkeypatch.setattr(CudaBackend, "_empty_l2", emptied)
    monkeypatch.setattr(blocks, "trace_blocks", traced)
    session.observe(asked(), Blocks(), Counters("cold"))
    assert seen == ["emptied", "measured"]
    session.observe(asked(), Blocks(), Counters("warm"))
    session.observe(asked(), Blocks())
    assert seen[2:] == ["measured", "measured"]


def test_watches_come_from_the_replay_and_a_mistake_keeps_the_kernel_from_running(events: list[str]) -> None:
    x = gl.cp.full(32, 3, gl.cp.int32)
    kernel = gl.cp.RawKernel(AS_OFTEN, "as_often")
    with pytest.raises(gl.errors.GpulabError, match=r"has no variable `turn`\. Did you mean .turns.\?"):
        gl.warps(kernel, 1, 32, (x,), watch="turn")
    assert "real" not in events
    view = gl.warps(kernel, 1, 32, (x,), watch="turns", stop="write x[5]")
    np.testing.assert_array_equal(x.get(), 6)
    assert [each.value[-1].tolist() for each in view.trace.watched] == [[3] * 32]
    assert set(view.trace.stops[0].lanes.tolist()) == {1 << 5}


def test_where_nothing_can_be_replayed_the_view_says_that_nothing_was_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sides, "SMALL_THREADS", 0)
    monkeypatch.setattr(sides, "QUICK_THREADS", 31)
    x = gl.cp.ones(32, gl.cp.int32)
    view = gl.warps(gl.cp.RawKernel(AS_OFTEN, "as_often"), 1, 32, (x,), watch="turns", stop="line 4")
    assert view.trace.granularity == "basic block"
    assert "Nothing was watched" in view.describe()
