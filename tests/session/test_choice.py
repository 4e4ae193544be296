"""Which device a session takes, and what it says about that."""

from __future__ import annotations

import html
import importlib
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import gpulab as gl
from gpulab import session
from gpulab.session.choose import DeviceChoice, parse_device
from gpulab.session.cuda import CudaUnavailableError
from tests.real import fake_nvml
from virtualgpu.errors import GpulabError, UnknownDeviceError
from virtualgpu.model import machine

FakeCupy = Callable[..., None]


def test_without_cupy_a_virtual_a100_is_used_and_the_sentence_says_why(no_cupy: None) -> None:
    choice = gl.which_device()
    assert (choice.kind, choice.compute_capability) == ("virtual", (8, 0))
    assert machine.current().devices[0].info.sm_count == 108
    for phrase in ("virtual A100", "8.0", "because", "modelled", "use_device", "GPULAB_DEVICE"):
        assert phrase in str(choice), phrase
    assert str(choice).count(". ") == 0, "one sentence"


def test_a_working_cupy_is_used(fake_cupy: FakeCupy) -> None:
    fake_cupy()
    choice = gl.which_device()
    assert (choice.kind, choice.device, choice.index) == ("cuda", "NVIDIA Fake 3000", 0)
    assert "real NVIDIA Fake 3000 (cuda:0, compute capability 9.0)" in str(choice)
    assert "measured" in str(choice)
    assert gl.cp.__name__ == choice.cp.__name__ == "cupy"


@pytest.mark.parametrize(
    ("failures", "why"),
    [
        ({"import": 1}, "cannot be imported (cudaError: failure 1 at import)"),
        ({"count": 35}, "driver is too old"),
        ({"count": 100}, "no CUDA device"),
        ({"zeros": 46}, "exclusive mode"),
        ({"zeros": "oom"}, "memory is used up by other processes"),
        ({"synchronize": 999}, "unknown error"),
        ({"nvrtc": 1}, "cannot load NVRTC"),
    ],
)
def test_a_broken_cupy_is_explained_and_left(
    fake_cupy: FakeCupy, failures: dict[str, int | str], why: str
) -> None:
    fake_cupy(**failures)
    choice = gl.which_device()
    assert choice.kind == "virtual"
    assert why in str(choice)
    with pytest.raises(CudaUnavailableError) as caught:
        gl.use_device("cuda")
    assert why in str(caught.value)
    assert 'gl.use_device("virtual")' in str(caught.value)


def test_a_folder_called_cupy_is_not_cupy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cupy").mkdir()
    (tmp_path / "cupy" / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    choice = gl.which_device()
    assert choice.kind == "virtual"
    assert "which is not CuPy and should be renamed" in str(choice)
    sys.modules.pop("cupy", None)


def test_a_device_number_that_is_not_there(fake_cupy: FakeCupy) -> None:
    fake_cupy(devices=2)
    assert gl.use_device("cuda:1").index == 1
    with pytest.raises(CudaUnavailableError, match="no cuda:2; this machine has cuda:0 to cuda:1"):
        gl.use_device("cuda:2")
    assert gl.which_device().index == 1, "a failed choice changes nothing"


@pytest.mark.parametrize("devices", [1, 2])
def test_where_there_are_several_gpus_nccl_is_there_unasked(
    fake_cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch, devices: int
) -> None:
    fake_cupy(devices=devices)
    loads = importlib.import_module
    asked = list[str]()
    monkeypatch.setattr(importlib, "import_module", lambda name: asked.append(name) or loads(name))
    assert gl.use_device("cuda").kind == "cuda"  # the fake has no NCCL, which is no error
    assert ("cupy.cuda.nccl" in asked) == (devices > 1)
    asked.clear()

    def load(name: str) -> object:
        asked.append(name)
        if name not in ("cupy.cuda.nccl", "cupyx.distributed"):
            return loads(name)
        return warnings.warn("CuPy's own, which nobody asked for", stacklevel=1)

    monkeypatch.setattr(importlib, "import_module", load)
    assert gl.use_device("cuda").kind == "cuda"
    assert ({"cupy.cuda.nccl", "cupyx.distributed"} <= {*asked}) == (devices > 1)


def test_who_else_uses_the_device_is_said(fake_cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml.module())
    fake_cupy()
    assert gl.use_device("cuda").caution == "1 other process on it, so times vary"
    assert "capability 9.0) (note: 1 other process on it, so times vary): times" in str(gl.which_device())


@pytest.mark.parametrize("name", ["T4", "t4", "virtual:T4", " virtual: T4 ", "Virtual:t4"])
def test_spellings_of_a_virtual_device(name: str) -> None:
    choice = gl.use_device(name)
    assert (choice.kind, choice.device) == ("virtual", "T4")
    assert machine.current().devices[0].info.compute_capability == (7, 5)


def test_several_virtual_devices() -> None:
    choice = gl.use_device("virtual:H200", count=3)
    assert [device.info.sm_count for device in machine.current().devices] == [132, 132, 132]
    assert "3 virtual H200" in str(choice)
    assert gl.use_device(count=2).count == 2
    assert len(machine.current().devices) == 2
    assert gl.use_device(count=2, watchdog_s=60).count == 2  # as it is, with more patience


CHANGE = "or the environment variable GPULAB_DEVICE changes that."


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (
            DeviceChoice("virtual", "T4", (7, 5), reason="no <NVIDIA> driver was found"),
            (
                "This session uses a virtual T4 (compute capability 7.5), because no <NVIDIA> driver was "
                "found: kernels really run, on the CPU, while times are modelled, not measured; "
                f'gl.use_device("virtual:H200") {CHANGE}'
            ),
        ),
        (
            DeviceChoice("virtual", "H200", (9, 0), count=8, links="pairs"),
            (
                "This session uses 8 virtual H200 GPUs, joined in pairs by NVLink, (compute capability 9.0): "
                "kernels really run, on the CPU, while times are modelled, not measured; "
                f'gl.use_device("virtual:T4") {CHANGE}'
            ),
        ),
        (
            DeviceChoice("cuda", "NVIDIA L4", (8, 9), 1, 2, caution="MIG is on"),
            (
                "This session uses the real NVIDIA L4 (cuda:1, compute capability 8.9) (note: MIG is on): "
                "times and "
                f'block placements are measured on it; gl.use_device("virtual:T4") {CHANGE}'
            ),
        ),
        (
            DeviceChoice("cuda", "NVIDIA L4", (8, 9)),
            (
                "This session uses the real NVIDIA L4 (cuda:0, compute capability 8.9): times and block "
                "placements "
                f'are measured on it; gl.use_device("virtual:T4") {CHANGE}'
            ),
        ),
    ],
)
def test_a_choice_in_one_sentence(choice: DeviceChoice, said: str) -> None:
    assert str(choice) == repr(choice) == said
    assert html.unescape(choice._repr_html_()) == f"<p>{said}</p>"
    assert "<NVIDIA>" not in choice._repr_html_()


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("auto", ("auto", "")),
        ("auto:1", ("virtual", "auto:1")),
        ("cuda", ("cuda", "0")),
        ("GPU: 12 ", ("cuda", "12")),
        ("virtual", ("virtual", "A100")),
        ("virtual:", ("virtual", "A100")),
        (" H200 ", ("virtual", "H200")),
        ("T4:x", ("virtual", "T4:x")),
    ],
)
def test_names_of_devices(text: str, parsed: tuple[str, str]) -> None:
    assert parse_device(text) == parsed


def test_what_names_no_device() -> None:
    with pytest.raises(TypeError, match=r'named by a string such as "cuda:0" or "virtual:T4", not 0'):
        gl.use_device(0)  # type: ignore[arg-type]
    with pytest.raises(
        UnknownDeviceError, match=r'"cuda:T4" is no CUDA device: .* a virtual one is "virtual:T4"'
    ):
        gl.use_device("cuda:T4")


def test_several_devices_are_joined_as_they_are_sold_or_as_is_asked() -> None:
    for asked, links, words in (
        ("nvswitch", "nvswitch", "all with each other by NVLink"),
        ("pairs", "pairs", "in pairs by NVLink"),
        ("host", "host", "through the host only"),
        (None, "nvswitch", "all with each other by NVLink"),
    ):
        choice = gl.use_device("virtual:H200", count=4, links=asked)
        assert (choice.count, choice.links) == (4, links)
        assert f"joined {words}," in str(choice)
    before = machine.current()
    assert gl.use_device(links="nvswitch") is choice
    assert gl.use_device(count=4, watchdog_s=9) is choice
    assert machine.current() is before
    assert {device.watchdog_s for device in before.devices} == {9}
    assert gl.use_device(links="pairs").links == "pairs"
    assert (gl.which_device().count, gl.which_device().device) == (4, choice.device)
    assert gl.use_device("virtual:H200").links == "", "one has none"


def test_real_devices_cannot_be_multiplied(fake_cupy: FakeCupy) -> None:
    fake_cupy(devices=2)
    for wrong in ({"count": 2}, {"links": "host"}):
        with pytest.raises(ValueError, match="are for virtual devices"):
            gl.use_device("cuda", **wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="are for virtual devices"):
            gl.use_device("auto", **wrong)  # type: ignore[arg-type]
    gl.use_device("cuda:1")
    for wrong in ({"count": 1}, {"links": "pairs"}):
        with pytest.raises(ValueError, match="CUDA devices are all there already"):
            gl.use_device(**wrong)  # type: ignore[arg-type]
    assert gl.use_device(watchdog_s=3).index == 1
    assert session.real_cp() is gl.which_device().cp


def test_a_bench_is_fresh_and_goes_when_it_is_done() -> None:
    gl.use_device("T4")
    x = session.cp().ones(8)
    before = machine.current()
    with session.bench() as fresh:
        assert machine.current() is fresh.machine is not before
        assert fresh.device_info().name == "T4"
        assert session.cp().get_default_memory_pool().used_bytes() == 0
    with session.bench(session.table_info("H200"), 2, "host") as other:
        assert [device.info.sm_count for device in other.machine.devices] == [132] * 2
        assert other.machine.links.kind == "host"
    assert machine.current() is before
    assert float(x.sum()) == 8
    assert session.real_cp() is None
    assert session.virtual_side().machine is before
    assert session.twin() is None


def test_figures_of_the_device_in_use() -> None:
    gl.use_device("virtual:H200", count=2)
    assert session.peer_gbps(direct=True) > 5 * session.peer_gbps(direct=False)
    assert session.l1_bytes(session.table_info("H200")) == 256 << 10
    assert session.l1_bytes(session.table_info("T4")) == 64 << 10
    names = [info.name for info in session.table()]
    assert len(names) == len({*names}) >= 10
    assert session.ceilings().gbps["DRAM"] == session.backend().device_info().memory_bandwidth_gbps


def test_an_unknown_name_suggests_the_nearest_and_changes_nothing() -> None:
    gl.use_device("T4")
    with pytest.raises(UnknownDeviceError, match="H200"):
        gl.use_device("virtual:H20")
    with pytest.raises(UnknownDeviceError, match="cuda:0"):
        gl.use_device("cuda:first")
    assert gl.which_device().device == "T4"


@pytest.mark.parametrize("count", [0, -1, 1.5, True, 1000])
def test_a_bad_count(count: object) -> None:
    with pytest.raises(ValueError, match="whole number of devices"):
        gl.use_device("T4", count=count)  # type: ignore[arg-type]


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPULAB_DEVICE", "virtual:L4")
    monkeypatch.setenv("GPULAB_WATCHDOG_S", "2.5")
    assert gl.which_device().device == "L4"
    assert machine.current().devices[0].watchdog_s == 2.5


@pytest.mark.parametrize(("value", "error"), [("H20", UnknownDeviceError), ("cuda", CudaUnavailableError)])
def test_a_wrong_environment_is_named(
    monkeypatch: pytest.MonkeyPatch, no_cupy: None, value: str, error: type[Exception]
) -> None:
    monkeypatch.setenv("GPULAB_DEVICE", value)
    with pytest.raises(error, match=f"^GPULAB_DEVICE={value}: "):
        from gpulab import cp  # noqa: F401


def test_a_wrong_watchdog_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("soon", "0", "-1", "nan"):
        monkeypatch.setenv("GPULAB_WATCHDOG_S", text)
        with pytest.raises(ValueError, match=f"GPULAB_WATCHDOG_S={text} is no number of seconds above 0"):
            gl.use_device("T4")
    monkeypatch.setenv("GPULAB_WATCHDOG_S", " ")
    gl.use_device("T4")


def test_the_watchdog_can_be_set_alone() -> None:
    gl.use_device("T4")
    before = machine.current()
    gl.use_device(watchdog_s=0.5)
    assert machine.current() is before
    assert before.devices[0].watchdog_s == 0.5
    with pytest.raises(ValueError, match="above 0"):
        gl.use_device(watchdog_s=0)


def test_choosing_the_same_virtual_device_again_keeps_its_arrays() -> None:
    gl.use_device("T4")
    before = machine.current()
    gl.use_device("T4")
    assert machine.current() is before
    gl.use_device("L4")
    assert machine.current() is not before


def test_work_for_later_refuses_a_device_that_was_left() -> None:
    gl.use_device("virtual:H200", count=2)
    cp = session.cp()
    with cp.cuda.Device(1):
        here = session.here()
    seen = []

    def callback() -> None:
        with here():
            seen.append(cp.cuda.Device().id)

    thread = threading.Thread(target=callback)
    thread.start()
    thread.join()
    assert seen == [1], "a callback's thread works on the device the work was made on"
    gl.use_device("T4")
    with pytest.raises(GpulabError, match="run its cell again"), here():
        pass


def test_another_device_for_a_moment_gives_the_first_one_back() -> None:
    gl.use_device("T4")
    before = machine.current()
    choice = gl.which_device()
    with session.on_device("virtual:H200", count=2):
        assert gl.which_device().device.startswith("H200")
        assert len(machine.current().devices) == 2
    assert machine.current() is before
    assert gl.which_device() is choice
    with pytest.raises(RuntimeError, match="inside"), session.on_device("L4"):
        raise RuntimeError("inside")
    assert machine.current() is before


def test_a_machine_is_looked_at_again_whenever_its_gpu_is_asked_for(fake_cupy: FakeCupy) -> None:
    fake_cupy(count=100)
    assert gl.use_device("auto").kind == "virtual"
    sys.modules.pop("cupy")
    fake_cupy()
    assert gl.use_device("auto").kind == "cuda"
    assert gl.use_device("cuda").kind == "cuda"
    sys.modules.pop("cupy")
    fake_cupy(synchronize=999)
    with pytest.raises(CudaUnavailableError, match="refuses work"):
        gl.use_device("cuda")
