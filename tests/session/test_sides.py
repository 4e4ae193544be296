"""The device (real GPU or virtual twin) that makes each observation, tested with fake devices."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpulab import session
from gpulab.session import cuda, current, sides
from virtualgpu.cuda_errors import CUDADriverError, CUDARuntimeError
from virtualgpu.errors import GpulabError, NotSupportedError, WatchError
from virtualgpu.model import machine
from virtualgpu.protocol import Accesses, Block, Blocks, Costs, Counters, Hazards, Launch, Warp

CODE = 'extern "C" __global__ void k(float* x, int n) { int i = threadIdx.x; if (i < n) x[i] += 1; }'


@pytest.fixture(autouse=True)
def device() -> None:
    session.use_device("virtual:T4")


class Twin:
    """A fake virtual GPU that records observations and returns ``("twin", observation)``."""

    def __init__(self) -> None:
        self.cp = session.cp()
        self.observations: list[tuple[Any, ...]] = []
        self.prepared_launches: list[Launch] = []
        self.refusal: Exception | None = None
        self.error: Exception | None = None
        self.watchdogs: list[list[float]] = []
        devices = [SimpleNamespace(watchdog_s=5.0), SimpleNamespace(watchdog_s=0.25)]
        self.machine = SimpleNamespace(devices=devices, keep_settings=self._keep_settings)

    @contextmanager
    def _keep_settings(self, name: str) -> Iterator[None]:
        values = [getattr(device, name) for device in self.machine.devices]
        yield
        for device, value in zip(self.machine.devices, values, strict=True):
            setattr(device, name, value)

    def prepared(self, launch: Launch) -> None:
        self.prepared_launches.append(launch)
        if self.refusal is not None:
            raise self.refusal

    def observe(self, launch: Launch, *observations: Any) -> Any:
        self.observations.append(observations)
        self.watchdogs.append([device.watchdog_s for device in self.machine.devices])
        self.launch = launch
        if self.error is not None:
            raise self.error
        answers = tuple(("twin", observation) for observation in observations)
        return answers if len(answers) > 1 else answers[0]


class Real:
    """A fake real GPU that returns ``("real", observation)``."""

    def __init__(self) -> None:
        self.observations: list[tuple[Any, ...]] = []

    def observe(self, launch: Launch, *observations: Any) -> Any:
        self.observations.append(observations)
        self.launch = launch
        answers = tuple(("real", observation) for observation in observations)
        return answers if len(answers) > 1 else answers[0]


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> tuple[Real, Twin]:
    real = Real()
    twin = Twin()
    monkeypatch.setattr(sides.current, "find_twin", lambda: twin)
    monkeypatch.setattr(sides.current, "backend", lambda: real)
    return real, twin


def launch(grid: int = 2, block: int = 64, n: int = 64, kernel: Any = None, **options: Any) -> Launch:
    cp = session.cp()
    args = (cp.ones(n, np.float32), np.int32(n))
    return Launch.of(kernel or cp.RawKernel(CODE, "k"), grid, block, options.pop("args", args), **options)


def test_times_are_measured_and_predicted(both: tuple[Real, Twin]) -> None:
    real, twin = both
    answer = session.observe(launch(), Blocks())
    assert answer.record == ("real", Blocks())
    assert answer.note == ""
    assert answer.counterpart is not None
    assert answer.counterpart() == ("twin", Blocks())
    assert (len(twin.observations), len(real.observations), len(twin.prepared_launches)) == (1, 1, 1)
    assert twin.watchdogs == [[0.5, 0.25]], "a first replay keeps to the shorter of two limits"
    assert [device.watchdog_s for device in twin.machine.devices] == [5.0, 0.25]
    assert answer.counterpart() == ("twin", Blocks()), "the replay is kept"
    assert len(twin.observations) == 1


@pytest.mark.parametrize(
    ("observation", "note", "runs"),
    [
        *((kind, "Counted in a replay", 1) for kind in (Counters(), Costs(), Accesses())),
        (Hazards(), "Executed on the virtual GPU with copies of the arrays.", 0),
    ],
)
def test_counters_and_hazards_are_observed_on_the_virtual_twin(
    both: tuple[Real, Twin], observation: Any, note: str, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, twin = both
    launches: list[Launch] = []
    monkeypatch.setattr(Launch, "run", lambda self: launches.append(self))
    answer = session.observe(launch(), observation)
    assert (answer.record, answer.counterpart) == (("twin", observation), None)
    assert note in answer.note
    assert len(launches) == runs
    assert real.observations == []
    assert twin.watchdogs[0] == [5.0, 0.25], "as long as the watchdog allows"


def test_each_observation_is_made_on_the_right_device(both: tuple[Real, Twin]) -> None:
    real, twin = both
    kinds = (Blocks(), Counters("cold"), Warp((1, 0, 0), 1), Block((1, 0, 0), 1), Hazards())
    answers = session.observe(launch(), *kinds)
    warp = Warp((1, 0, 0), 1, kinds[3].max_steps)
    assert real.observations == [(Blocks(caches="cold"), Warp((1, 0, 0), 1), warp)]
    assert twin.observations == [kinds]
    assert answers[0].record == ("real", Blocks(caches="cold"))
    assert answers[1].record == ("twin", kinds[1])
    assert answers[2].record == ("twin", kinds[2])
    assert answers[2].counterpart() == ("real", kinds[2])
    assert answers[3].counterpart() == ("real", warp)
    two = session.observe(launch(), Blocks(), Counters("warm"))
    assert [answer.record[0] for answer in two] == ["real", "twin"]
    assert real.observations[-1] == (Blocks(),)


def test_an_unsupported_replay_gives_no_prediction(both: tuple[Real, Twin]) -> None:
    _, twin = both
    twin.error = NotSupportedError("not on a virtual GPU")
    warp = session.observe(launch(), Warp())
    assert (warp.record, warp.counterpart) == (("real", Warp()), None)
    blocks = session.observe(launch(), Blocks())
    assert blocks.counterpart is not None
    assert blocks.counterpart() is None


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        *((CUDARuntimeError(status, "cudaError", ""), True) for status in (700, 716, 710, 719)),
        (CUDARuntimeError(702, "cudaErrorLaunchTimeout", ""), False),
        (WatchError("x"), True),
        (UserWarning("x"), True),
        (RuntimeError("x"), False),
        (CUDARuntimeError(999, "", ""), False),
    ],
)
def test_a_fault_in_the_replay_is_raised_before_the_real_gpu_runs(
    both: tuple[Real, Twin], error: Exception, passes: bool
) -> None:
    real, twin = both
    twin.error = error
    if passes:
        with pytest.raises(type(error)):
            session.observe(launch(), Blocks())
    else:
        assert session.observe(launch(), Blocks()).record[0] == "real"
    assert len(real.observations) == (not passes)


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (TypeError("one too few"), True),
        (UserWarning("x"), True),
        (ValueError("x"), False),
        *((CUDADriverError(status, "CUDA_ERROR", ""), True) for status in (1, 500, 701, 720)),
        (CUDADriverError(2, "CUDA_ERROR", ""), False),
        (CUDADriverError(700, "CUDA_ERROR", ""), False),
    ],
)
def test_an_error_in_the_preparation_is_raised_before_the_real_gpu_runs(
    both: tuple[Real, Twin], error: Exception, passes: bool
) -> None:
    real, twin = both
    twin.refusal = error
    if passes:
        with pytest.raises(type(error)):
            session.observe(launch(), Blocks())
    else:
        session.observe(launch(), Blocks())
    assert len(real.observations) == (not passes)


def test_small_launches_are_replayed_first_and_larger_ones_on_demand(
    both: tuple[Real, Twin], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, twin = both

    def replays(threads: int, n: int = 8) -> tuple[int, bool]:
        twin.observations.clear()
        answer = session.observe(launch(threads // 64, 64, n), Blocks())
        count = len(twin.observations)
        assert answer.counterpart is not None
        return count, answer.counterpart() is not None

    monkeypatch.setattr(sides, "MAX_SMALL_BYTES", 4 * 64)
    monkeypatch.setattr(sides, "MAX_QUICK_BYTES", 4 * 128)
    assert replays(1 << 18, 64) == (1, True)
    assert replays((1 << 18) + 64, 64) == (0, True)
    assert replays(64, 65) == (0, True)
    assert replays(1 << 22, 128) == (0, True)
    assert replays((1 << 22) + 64, 64) == (0, False)
    assert replays(64, 129) == (0, False)


def test_launches_with_other_arguments_are_only_measured(both: tuple[Real, Twin]) -> None:
    real, twin = both
    answer = session.observe(launch(args=(object(),)), Blocks())
    assert answer.record[0] == "real"
    assert answer.counterpart is not None
    assert answer.counterpart() is None
    assert (twin.prepared_launches, twin.observations, len(real.observations)) == ([], [], 1)


# -- block sizes ------------------------------------------------------------------------------------------


def test_a_block_size_slider_keeps_no_arrays_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Real()
    monkeypatch.setattr(sides.current, "backend", lambda: real)
    original = launch()
    trace = session.make_block_size_launcher(session.KeptLaunch(original))
    assert trace is not None
    assert trace(32) == ("real", Blocks(restore=True))
    assert (real.launch.block, real.launch.grid, real.launch.args) == ((32, 1, 1), (4, 1, 1), original.args)
    array = weakref.ref(original.args[0])
    del original, real.launch
    current._find_session().recent_arrays.clear()
    gc.collect()
    assert array() is None
    with pytest.raises(GpulabError, match="arrays of this launch have been freed"):
        trace(32)
    for grid, block in (((2, 2), 32), (2, (8, 8))):
        flat = Launch.of(session.cp().RawKernel(CODE, "k"), grid, block)
        assert session.make_block_size_launcher(session.KeptLaunch(flat)) is None


def test_other_block_sizes_are_replayed_on_the_twin_first(
    both: tuple[Real, Twin], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, twin = both
    trace = session.make_block_size_launcher(session.KeptLaunch(launch(8, 64)))
    assert trace is not None
    assert trace(64)[0] == "real"
    assert twin.observations == [], "the original size needs no replay"
    trace(128)
    assert twin.observations == [(Blocks(),)]
    assert twin.launch.block == (128, 1, 1)
    twin.error = CUDARuntimeError(700, "cudaErrorIllegalAddress", "")
    count = len(real.observations)
    with pytest.raises(CUDARuntimeError):
        trace(256)
    assert len(real.observations) == count
    monkeypatch.setattr(sides, "MAX_QUICK_THREADS", 100)
    for threads in (32, 16, 64):
        assert trace(threads)[0] == "real"
    for threads in (128, 48):
        with pytest.raises(GpulabError, match=r"smaller block sizes that divide its 512 threads evenly"):
            trace(threads)


# -- calls, histories, faults, the device -----------------------------------------------------------------


def test_on_device_restores_the_current_real_device(fake_cupy: Callable[..., None]) -> None:
    fake_cupy(devices=2)
    session.use_device("cuda:1")
    used: list[int] = []
    session.cp().cuda.Device.use = lambda device: used.append(device.index)
    with session.on_device("T4"):
        assert used == []
    assert used == [1]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("\n ====\n  first.  \nsecond"), "first"),
        (RuntimeError(""), "RuntimeError"),
        (CUDARuntimeError(100, "cudaErrorNoDevice", "x"), cuda.CUDA_ERRORS[100][0]),
        (CUDARuntimeError(12345, "cudaErrorOdd", "strange"), "cudaErrorOdd: strange"),
        (type("OutOfMemoryError", (MemoryError,), {})("12 bytes"), cuda.CUDA_ERRORS[2][0]),
    ],
)
def test_a_cupy_failure_is_explained(error: Exception, reason: str) -> None:
    assert cuda._explain_failure(error) == reason


def test_a_missing_cupy_is_reported_with_the_pip_command(
    no_cupy: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "query_driver_status", lambda: SimpleNamespace(is_usable=True))
    with pytest.raises(cuda.CudaUnavailableError, match=r"^there is a GPU, but CuPy is not installed: pip"):
        cuda.open_cuda_device()
    monkeypatch.setattr(
        cuda, "query_driver_status", lambda: SimpleNamespace(is_usable=False, problem="no driver")
    )
    with pytest.raises(cuda.CudaUnavailableError, match=r"^no driver$"):
        cuda.open_cuda_device()


def test_the_virtual_gpu_imported_as_cupy_is_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "cupy", sys.modules["virtualgpu.cp"])
    with pytest.raises(cuda.CudaUnavailableError, match="imports the virtual GPU here"):
        cuda.open_cuda_device()


def test_the_watchdog_applies_to_all_devices_of_a_session() -> None:
    session.use_device("virtual:H200", count=2, watchdog_s=7)
    assert [device.watchdog_s for device in machine.current().devices] == [7, 7]
    session.use_device(count=3)
    assert {device.watchdog_s for device in machine.current().devices} != {7}, "another machine has its own"
    twin = SimpleNamespace(machine=SimpleNamespace(devices=[SimpleNamespace(watchdog_s=1)]))
    current._find_session().twin = twin  # type: ignore[assignment]
    session.use_device(watchdog_s=9)
    assert twin.machine.devices[0].watchdog_s == 9
    assert current._find_session().watchdog_s == 9
