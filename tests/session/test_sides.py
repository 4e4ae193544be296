"""Which side answers what of a launch, with a made-up GPU and a made-up twin; calls; histories; cautions."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from gpulab.session import calls, cuda, current, history, sides, waiting
from tests.trace.test_cupti_library import Library, called_back
from virtualgpu.cuda_errors import CUDADriverError, CUDARuntimeError
from virtualgpu.errors import GpulabError, NotSupportedError, WatchError
from virtualgpu.model import machine
from virtualgpu.model.orders.late_faults import LateFaults
from virtualgpu.protocol import Accesses, Block, Blocks, Costs, Counters, Hazards, Launch, Warp
from virtualgpu.records import Activity

CODE = 'extern "C" __global__ void k(float* x, int n) { int i = threadIdx.x; if (i < n) x[i] += 1; }'


@pytest.fixture(autouse=True)
def device() -> None:
    session.use_device("virtual:T4")


class Twin:
    """A virtual GPU that notes what it is asked, and answers ``("twin", what)``."""

    def __init__(self) -> None:
        self.cp = session.cp()
        self.asked: list[tuple[Any, ...]] = []
        self.prepared_for: list[Launch] = []
        self.refuses: Exception | None = None
        self.fails: Exception | None = None
        self.watchdogs: list[list[float]] = []
        devices = [SimpleNamespace(watchdog_s=5.0), SimpleNamespace(watchdog_s=0.25)]
        self.machine = SimpleNamespace(devices=devices, keeping=self._keeping)

    @contextmanager
    def _keeping(self, name: str) -> Iterator[None]:
        kept = [getattr(each, name) for each in self.machine.devices]
        yield
        for each, value in zip(self.machine.devices, kept, strict=True):
            setattr(each, name, value)

    def prepared(self, launch: Launch) -> None:
        self.prepared_for.append(launch)
        if self.refuses is not None:
            raise self.refuses

    def observe(self, launch: Launch, *what: Any) -> Any:
        self.asked.append(what)
        self.watchdogs.append([each.watchdog_s for each in self.machine.devices])
        self.seen = launch
        if self.fails is not None:
            raise self.fails
        found = tuple(("twin", each) for each in what)
        return found if len(what) > 1 else found[0]


class Real:
    """A real GPU that answers ``("real", what)``."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def observe(self, launch: Launch, *what: Any) -> Any:
        self.asked.append(what)
        self.seen = launch
        found = tuple(("real", each) for each in what)
        return found if len(what) > 1 else found[0]


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> tuple[Real, Twin]:
    real = Real()
    twin = Twin()
    monkeypatch.setattr(sides.current, "twin", lambda: twin)
    monkeypatch.setattr(sides.current, "backend", lambda: real)
    return real, twin


def launch(grid: int = 2, block: int = 64, n: int = 64, kernel: Any = None, **more: Any) -> Launch:
    cp = session.cp()
    args = (cp.ones(n, np.float32), np.int32(n))
    return Launch.of(kernel or cp.RawKernel(CODE, "k"), grid, block, more.pop("args", args), **more)


def test_a_virtual_gpu_answers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Real()
    monkeypatch.setattr(sides.current, "backend", lambda: real)
    asked = launch()
    one = session.observe(asked, Blocks())
    assert (one.record, one.counterpart, one.note) == (("real", Blocks()), None, "")
    several = session.observe(asked, Blocks(), Warp())
    assert [each.record for each in several] == [("real", Blocks()), ("real", Warp())]
    assert real.asked == [(Blocks(),), (Blocks(), Warp())]


def test_times_are_measured_and_predicted_beside(both: tuple[Real, Twin]) -> None:
    real, twin = both
    found = session.observe(launch(), Blocks())
    assert found.record == ("real", Blocks())
    assert found.note == ""
    assert found.counterpart is not None
    assert found.counterpart() == ("twin", Blocks())
    assert (len(twin.asked), len(real.asked), len(twin.prepared_for)) == (1, 1, 1)
    assert twin.watchdogs == [[0.5, 0.25]], "a first replay keeps to the shorter of two limits"
    assert [each.watchdog_s for each in twin.machine.devices] == [5.0, 0.25]
    assert found.counterpart() == ("twin", Blocks()), "what was replayed is kept"
    assert len(twin.asked) == 1


def test_what_only_the_twin_tells_is_counted_there(both: tuple[Real, Twin]) -> None:
    real, twin = both
    ran: list[str] = []
    asked = launch()
    kernel = asked.kernel
    for what, note, runs in (
        (Counters(), "Counted in a replay on the virtual GPU", 1),
        (Costs(), "Counted in a replay on the virtual GPU", 1),
        (Accesses(), "Counted in a replay on the virtual GPU", 1),
        (Hazards(), "Run on the virtual GPU over copies of the arrays.", 0),
    ):
        ran.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Launch, "run", lambda self: ran.append("real"))
            found = session.observe(launch(kernel=kernel), what)
        assert (found.record, found.counterpart, found.note) == (("twin", what), None, note)
        assert len(ran) == runs
    assert real.asked == []
    assert twin.watchdogs[0] == [5.0, 0.25], "as long as the watchdog allows"


def test_several_observations_are_asked_of_whom_they_concern(both: tuple[Real, Twin]) -> None:
    real, twin = both
    what = (Blocks(), Counters("cold"), Warp((1, 0, 0), 1), Block((1, 0, 0), 1), Hazards())
    found = dict(zip(what, session.observe(launch(), *what), strict=True))
    warp = Warp((1, 0, 0), 1, what[3].max_steps)
    (asked,) = real.asked
    assert asked == (Blocks(caches="cold"), Warp((1, 0, 0), 1), warp)
    assert twin.asked == [what]
    assert found[what[0]].record == ("real", Blocks(caches="cold"))
    assert found[what[1]].record == ("twin", what[1])
    assert found[what[2]].record == ("twin", what[2])
    assert found[what[2]].counterpart() == ("real", what[2])
    assert found[what[3]].counterpart() == ("real", warp)
    two = session.observe(launch(), Blocks(), Counters("warm"))
    assert [each.record[0] for each in two] == ["real", "twin"]
    assert real.asked[-1] == (Blocks(),)


def test_without_a_replay_masks_stand_alone(both: tuple[Real, Twin]) -> None:
    _, twin = both
    twin.fails = NotSupportedError("not on a virtual GPU")
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
def test_what_would_end_the_context_is_raised_before_the_real_gpu_runs(
    both: tuple[Real, Twin], error: Exception, passes: bool
) -> None:
    real, twin = both
    twin.fails = error
    if passes:
        with pytest.raises(type(error)):
            session.observe(launch(), Blocks())
    else:
        assert session.observe(launch(), Blocks()).record[0] == "real"
    assert len(real.asked) == (not passes)


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
def test_what_the_launch_would_raise_is_raised_first(
    both: tuple[Real, Twin], error: Exception, passes: bool
) -> None:
    real, twin = both
    twin.refuses = error
    if passes:
        with pytest.raises(type(error)):
            session.observe(launch(), Blocks())
    else:
        session.observe(launch(), Blocks())
    assert len(real.asked) == (not passes)
    assert twin.prepared_for[0].kernel is not None
    assert not any(arg is twin.prepared_for[0].args[0] for arg in launch().args)


def test_a_count_that_takes_too_long_says_so(both: tuple[Real, Twin]) -> None:
    _, twin = both
    twin.fails = CUDARuntimeError(702, "cudaErrorLaunchTimeout", "")
    with pytest.raises(GpulabError, match=r"did not finish its replay (.|\n)*watchdog_s=60"):
        session.observe(launch(), Counters())
    for error in (CUDARuntimeError(700, "cudaErrorIllegalAddress", ""), RuntimeError("mine")):
        twin.fails = error
        with pytest.raises(type(error)) as raised:
            session.observe(launch(), Counters())
        assert raised.value is error


def test_small_launches_are_replayed_first_and_larger_ones_when_asked(
    both: tuple[Real, Twin], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, twin = both

    def replays(threads: int, n: int = 8) -> tuple[int, bool]:
        twin.asked.clear()
        found = session.observe(launch(threads // 64, 64, n), Blocks())
        before = len(twin.asked)
        assert found.counterpart is not None
        return before, found.counterpart() is not None

    assert (sides.SMALL_THREADS, sides.SMALL_BYTES) == (1 << 18, 32 << 20)
    assert (sides.QUICK_THREADS, sides.QUICK_BYTES) == (1 << 22, 256 << 20)
    monkeypatch.setattr(sides, "SMALL_BYTES", 4 * 64)
    monkeypatch.setattr(sides, "QUICK_BYTES", 4 * 128)
    assert replays(1 << 18, 64) == (1, True)
    assert replays((1 << 18) + 64, 64) == (0, True)
    assert replays(64, 65) == (0, True)
    assert replays(1 << 22, 128) == (0, True)
    assert replays((1 << 22) + 64, 64) == (0, False)
    assert replays(64, 129) == (0, False)


def test_arguments_that_are_no_numbers_or_arrays_are_only_measured(both: tuple[Real, Twin]) -> None:
    real, twin = both
    found = session.observe(launch(args=(object(),)), Blocks())
    assert found.record[0] == "real"
    assert found.counterpart is not None
    assert found.counterpart() is None
    assert (twin.prepared_for, twin.asked, len(real.asked)) == ([], [], 1)


# -- block sizes ------------------------------------------------------------------------------------------


def test_a_slider_keeps_no_arrays_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Real()
    monkeypatch.setattr(sides.current, "backend", lambda: real)
    asked = launch()
    trace = session.at_block_size(session.KeptLaunch(asked))
    assert trace is not None
    assert trace(32) == ("real", Blocks(restore=True))
    assert (real.seen.block, real.seen.grid, real.seen.args) == ((32, 1, 1), (4, 1, 1), asked.args)
    gone = weakref.ref(asked.args[0])
    del asked, real.seen
    current._current().recent.clear()
    gc.collect()
    assert gone() is None
    with pytest.raises(GpulabError, match="arrays of this launch are gone"):
        trace(32)
    for grid, block in (((2, 2), 32), (2, (8, 8))):
        flat = Launch.of(session.cp().RawKernel(CODE, "k"), grid, block)
        assert session.at_block_size(session.KeptLaunch(flat)) is None


def test_other_block_sizes_are_tried_on_the_twin(
    both: tuple[Real, Twin], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, twin = both
    asked = launch(8, 64)
    trace = session.at_block_size(session.KeptLaunch(asked))
    assert trace is not None
    assert trace(64)[0] == "real"
    assert twin.asked == [], "as it was"
    trace(128)
    assert twin.asked == [(Blocks(),)]
    assert twin.seen.block == (128, 1, 1)
    twin.fails = CUDARuntimeError(700, "cudaErrorIllegalAddress", "")
    before = len(real.asked)
    with pytest.raises(CUDARuntimeError):
        trace(256)
    assert len(real.asked) == before
    monkeypatch.setattr(sides, "QUICK_THREADS", 100)
    for threads in (32, 16, 64):
        assert trace(threads)[0] == "real"
    for threads in (128, 48):
        with pytest.raises(GpulabError, match=r"smaller block sizes that divide its 512 threads evenly"):
            trace(threads)


def test_occupancies_of_a_timeline_s_kernels() -> None:
    of = session.occupancies()

    def kernel(block: Any, registers: Any, shared: int = 0) -> Activity:
        return Activity(
            kind="CONCURRENT_KERNEL",
            name="k",
            device_id=0,
            stream_id=0,
            start_ns=0,
            end_ns=1,
            block=block,
            correlation_id=1,
            registers_per_thread=registers,
            shared_bytes=shared,
        )

    # A T4's SM holds 1,024 threads, 65,536 registers and 64 KiB of shared memory.
    assert of(kernel((256, 1, 1), 32)) == 1
    assert of(kernel((16, 4, 4), 128)) == 0.5
    assert of(kernel((256, 1, 1), 32, 32 << 10)) == 0.5
    assert of(kernel(None, 32)) is None
    assert of(kernel((256, 1, 1), 0)) is None


# -- calls, histories, faults, the device -----------------------------------------------------------------


def test_calls_are_counted_as_they_begin_by_the_api_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Library()
    cupti = calls.library.Cupti(fake)
    monkeypatch.setattr(calls.library, "load", lambda: cupti)
    given: list[Any] = []

    def function(*args: Any) -> None:
        given.append(args)
        for domain, cbid in ((2, 6), (2, 6), (1, 2), (2, 1), (1, 1)):
            called_back(fake, domain, cbid, 0)
            called_back(fake, domain, cbid, 1)

    runtime, driver = calls.driver_calls(function, (1, "two"))
    assert given == [(1, "two")]
    assert sorted(runtime) == [("cudaEventRecord", 2), ("cudaMalloc", 1)]
    assert sorted(driver) == [("cuInit", 1), ("cuLaunchKernel", 1)]
    enabled = {tuple(call) for call in fake.named("callback")}
    assert {(2, 1, 1, 77), (2, 6, 1, 77), (1, 1, 1, 77), (1, 2, 1, 77)} <= enabled


def test_a_real_gpu_tells_nobody_s_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    x = session.cp().zeros(4)
    seen = history.element_history(x[1:2], "x[1]", lambda: x.fill(3))
    assert (seen.element, seen.writes[-1].value, seen.error, seen.left_out) == ("x[1]", 3.0, "", 0)
    assert seen.provenance == session.backend().provenance

    def fails() -> None:
        raise KeyError("mine")

    assert history.element_history(x[1:2], "x[1]", fails).error == "KeyError: 'mine'"
    monkeypatch.setattr("virtualgpu.sanitizer.history._MAX_WRITES", 3)
    seen = history.element_history(x[1:2], "x[1]", lambda: [x.fill(each) for each in range(5)])
    assert ([write.value for write in seen.writes], seen.left_out) == ([2.0, 3.0, 4.0], 3)
    monkeypatch.setattr(history.current, "real_cp", lambda: session.cp())
    with pytest.raises(NotSupportedError, match="make the arrays on a virtual one"):
        history.element_history(x[1:2], "x[1]", lambda: None)


def test_a_bench_is_one_device_unless_more_are_asked_for() -> None:
    with session.bench() as fresh:
        assert len(fresh.machine.devices) == 1
    with session.bench(count=2) as fresh:
        assert len(fresh.machine.devices) == 2


def test_another_device_for_a_moment_may_be_joined_otherwise() -> None:
    with session.on_device("virtual:H200", 2, "host") as cp:
        assert (gl.which_device().count, gl.which_device().links) == (2, "host")
        assert cp is session.cp()
    assert gl.which_device().device == "T4"


def test_a_real_device_is_made_current_again(fake_cupy: Callable[..., None]) -> None:
    fake_cupy(devices=2)
    session.use_device("cuda:1")
    used: list[int] = []
    session.cp().cuda.Device.use = lambda device: used.append(device.index)
    with session.on_device("T4"):
        assert used == []
    assert used == [1]


def test_late_faults_are_those_of_the_virtual_device(monkeypatch: pytest.MonkeyPatch) -> None:
    with session.late_faults() as late:
        assert isinstance(late, LateFaults)
    monkeypatch.setattr(current.orders, "late_faults", lambda *asked: nullcontext(asked))
    for how, blocking in (({}, False), ({"blocking": True}, True)):
        with session.late_faults(**how) as asked:
            assert asked == (machine.current(), blocking)
    monkeypatch.setattr(current._current(), "virtual", None)
    with session.late_faults() as late:
        assert late is None, "a real one tells nothing"


@pytest.mark.parametrize("fails", [True, False])
def test_without_nvml_there_is_no_caution(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    def sharing(bus_id: str) -> Any:
        if fails:
            raise OSError("no NVML")
        return SimpleNamespace(phrase=f"shared {bus_id}")

    monkeypatch.setattr(cuda, "sharing", sharing)
    assert cuda._caution(SimpleNamespace(pci_bus_id="7")) == ("" if fails else "shared 7")


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
def test_reasons_in_words(error: Exception, reason: str) -> None:
    assert cuda._reason(error) == reason


def test_a_gpu_without_cupy_is_told(no_cupy: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "driver_status", lambda: SimpleNamespace(usable=True))
    with pytest.raises(cuda.CudaUnavailableError, match=r"^there is a GPU, but CuPy is not installed: pip"):
        cuda.open_cuda_device()
    monkeypatch.setattr(cuda, "driver_status", lambda: SimpleNamespace(usable=False, problem="no driver"))
    with pytest.raises(cuda.CudaUnavailableError, match=r"^no driver$"):
        cuda.open_cuda_device()


def test_the_virtual_gpu_in_cupy_s_place_is_no_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "cupy", sys.modules["virtualgpu.cp"])
    with pytest.raises(cuda.CudaUnavailableError, match="means the virtual GPU here"):
        cuda.open_cuda_device()


def test_kernels_of_the_session_say_where_they_are() -> None:
    assert machine.current().onlooker is waiting.KernelLine
    with session.bench() as fresh:
        assert fresh.machine.onlooker is waiting.KernelLine


def test_the_watchdog_of_a_session_is_that_of_all_its_devices() -> None:
    session.use_device("virtual:H200", count=2, watchdog_s=7)
    assert [each.watchdog_s for each in machine.current().devices] == [7, 7]
    session.use_device(count=3)
    assert {each.watchdog_s for each in machine.current().devices} != {7}, "another machine has its own"
    twin = SimpleNamespace(machine=SimpleNamespace(devices=[SimpleNamespace(watchdog_s=1)]))
    current._current().twin = twin  # type: ignore[assignment]
    session.use_device(watchdog_s=9)
    assert twin.machine.devices[0].watchdog_s == 9
    assert current._current().watchdog_s == 9


def test_names_and_lines_of_the_program() -> None:
    cp = gl.cp
    held = cp.zeros(3)
    names = session.program_names()
    names.take({"held": held})
    assert names.array(id(held)) == "held"
    by_place: Callable[[Any], int] = lambda array: int(array.data.ptr)  # noqa: E731
    names = session.program_names(by_place)
    names.take({"held": held})
    assert names.array(int(held.data.ptr)) == "held"
    source, _ = session.program_lines().here()
    assert source is not None
    assert source.file == "test_sides.py"
    assert session.shown_file("/a/b.py") == "b.py"
    assert session.cupyx().__name__ == "virtualgpu.cupyx"
