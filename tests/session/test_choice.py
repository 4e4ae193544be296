"""Which device a session takes, and the sentence about it."""

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
from gpulab.session.choose import DeviceChoice
from gpulab.session.cuda import CudaUnavailableError
from tests.real import fake_nvml
from virtualgpu.errors import GpulabError, UnknownDeviceError
from virtualgpu.model import machine

FakeCupy = Callable[..., None]


def test_without_cupy_a_virtual_a100_is_used_and_the_sentence_has_the_reason(no_cupy: None) -> None:
    choice = gl.which_device()
    assert (choice.kind, choice.compute_capability) == ("virtual", (8, 0))
    assert machine.current().devices[0].info.sm_count == 108
    for part in ("virtual A100", "8.0", "because", "modelled", "use_device", "GPULAB_DEVICE"):
        assert part in str(choice), part


def test_a_working_cupy_is_used(fake_cupy: FakeCupy) -> None:
    fake_cupy()
    choice = gl.which_device()
    assert (choice.kind, choice.device, choice.index) == ("cuda", "NVIDIA Fake 3000", 0)
    assert "real NVIDIA Fake 3000 (cuda:0, compute capability 9.0)" in str(choice)
    assert "measured" in str(choice)
    assert gl.cp.__name__ == choice.cp.__name__ == "cupy"


@pytest.mark.parametrize(
    ("failures", "reason"),
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
def test_a_broken_cupy_is_explained_and_not_used(
    fake_cupy: FakeCupy, failures: dict[str, int | str], reason: str
) -> None:
    fake_cupy(**failures)
    choice = gl.which_device()
    assert choice.kind == "virtual"
    assert reason in str(choice)
    with pytest.raises(CudaUnavailableError) as error:
        gl.use_device("cuda")
    assert reason in str(error.value)
    assert 'gl.use_device("virtual")' in str(error.value)


def test_a_folder_called_cupy_is_not_cupy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cupy").mkdir()
    (tmp_path / "cupy" / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    choice = gl.which_device()
    assert choice.kind == "virtual"
    assert "which is not CuPy and should be renamed" in str(choice)
    sys.modules.pop("cupy", None)


def test_missing_device_number_is_refused(fake_cupy: FakeCupy) -> None:
    fake_cupy(devices=2)
    assert gl.use_device("cuda:1").index == 1
    with pytest.raises(CudaUnavailableError, match="no cuda:2; this machine has cuda:0 to cuda:1"):
        gl.use_device("cuda:2")
    assert gl.which_device().index == 1, "a failed choice changes nothing"


@pytest.mark.parametrize("devices", [1, 2])
def test_nccl_is_imported_where_there_are_several_gpus(
    fake_cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch, devices: int
) -> None:
    fake_cupy(devices=devices)
    import_module = importlib.import_module
    names: list[str] = []

    def load(name: str) -> object:
        names.append(name)
        return import_module(name)

    def warn(name: str) -> object:
        names.append(name)
        if name in ("cupy.cuda.nccl", "cupyx.distributed"):
            return warnings.warn("CuPy's own, which is not shown", stacklevel=1)
        return import_module(name)

    monkeypatch.setattr(importlib, "import_module", load)
    assert gl.use_device("cuda").kind == "cuda"  # the fake has no NCCL, which is no error
    assert ("cupy.cuda.nccl" in names) == (devices > 1)
    names.clear()
    monkeypatch.setattr(importlib, "import_module", warn)
    assert gl.use_device("cuda").kind == "cuda"
    assert ({"cupy.cuda.nccl", "cupyx.distributed"} <= {*names}) == (devices > 1)


def test_other_processes_on_the_device_are_mentioned(
    fake_cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml.module())
    fake_cupy()
    assert gl.use_device("cuda").caution == "1 other process on this GPU, so times vary"
    assert "1 other process on this GPU, so times vary" in str(gl.which_device())


@pytest.mark.parametrize(
    ("name", "device"),
    [
        *((name, "T4") for name in ("T4", "t4", "virtual:T4", " virtual: T4 ", "Virtual:t4")),
        *((name, "A100-SXM4-80GB") for name in ("virtual", "virtual:")),
        (" H200 ", "H200"),
    ],
)
def test_spellings_of_a_virtual_device(name: str, device: str) -> None:
    choice = gl.use_device(name)
    assert (choice.kind, choice.device) == ("virtual", device)


@pytest.mark.parametrize("name", ["cuda:1", "GPU: 1 "])
def test_spellings_of_a_real_device(fake_cupy: FakeCupy, name: str) -> None:
    fake_cupy(devices=2)
    assert (gl.use_device(name).kind, gl.use_device(name).index) == ("cuda", 1)


@pytest.mark.parametrize(
    ("choice", "parts", "other"),
    [
        (
            DeviceChoice("virtual", "T4", (7, 5), reason="no <NVIDIA> driver was found"),
            ["a virtual T4", "7.5", "because no <NVIDIA> driver was found", "modelled"],
            "H200",
        ),
        (
            DeviceChoice("virtual", "H200", (9, 0), count=8, links="pairs"),
            ["8 virtual H200 GPUs", "pairs by NVLink", "9.0", "modelled"],
            "T4",
        ),
        (
            DeviceChoice("cuda", "NVIDIA L4", (8, 9), 1, 2, caution="MIG is on"),
            ["the real NVIDIA L4", "cuda:1", "8.9", "MIG is on", "measured"],
            "T4",
        ),
    ],
)
def test_description_of_a_choice_names_device_and_alternative(
    choice: DeviceChoice, parts: list[str], other: str
) -> None:
    text = str(choice)
    for part in (*parts, f'gl.use_device("virtual:{other}")', "GPULAB_DEVICE"):
        assert part in text
    assert text == repr(choice)
    assert html.unescape(choice._repr_html_()) == f"<p>{text}</p>"
    assert "<NVIDIA>" not in choice._repr_html_()


def test_a_wrong_name_suggests_the_nearest_and_changes_nothing() -> None:
    gl.use_device("T4")
    with pytest.raises(TypeError, match=r'must be a str such as "cuda:0" or "virtual:T4", not 0'):
        gl.use_device(0)  # type: ignore[arg-type]
    for name, remedy in (("virtual:H20", "H200"), ("cuda:T4", '"virtual:T4"'), ("cuda:first", "cuda:0")):
        with pytest.raises(UnknownDeviceError, match=remedy):
            gl.use_device(name)
    assert gl.which_device().device == "T4"


def test_links_between_devices_are_default_or_as_requested() -> None:
    for requested, links, words in (
        ("nvswitch", "nvswitch", "NVLink between all of them"),
        ("pairs", "pairs", "in pairs by NVLink"),
        ("host", "host", "through the host only"),
        (None, "nvswitch", "NVLink between all of them"),
    ):
        choice = gl.use_device("virtual:H200", count=4, links=requested)
        assert (choice.count, choice.links) == (4, links)
        assert f"joined {words}," in str(choice)
    before = machine.current()
    assert gl.use_device(links="nvswitch") is choice
    assert gl.use_device(count=4, watchdog_s=9) is choice
    assert machine.current() is before
    assert {device.watchdog_s for device in before.devices} == {9}
    assert gl.use_device(links="pairs").links == "pairs"
    assert (gl.which_device().count, gl.which_device().device) == (4, choice.device)
    assert gl.use_device("virtual:H200").links == "", "a single device has no links"


def test_count_and_links_are_for_virtual_devices(fake_cupy: FakeCupy) -> None:
    fake_cupy(devices=2)
    for name in ("cuda", "auto"):
        for option in ({"count": 2}, {"links": "host"}):
            with pytest.raises(ValueError, match="only with virtual devices"):
                gl.use_device(name, **option)  # type: ignore[arg-type]
    gl.use_device("cuda:1")
    for option in ({"count": 1}, {"links": "pairs"}):
        with pytest.raises(ValueError, match="All CUDA devices"):
            gl.use_device(**option)  # type: ignore[arg-type]
    assert gl.use_device(watchdog_s=3).index == 1
    assert session.real_cp() is gl.which_device().cp


def test_bench_device_is_new_and_removed_afterwards() -> None:
    gl.use_device("T4")
    x = session.cp().ones(8)
    before = machine.current()
    with session.use_bench_device() as fresh:
        assert machine.current() is fresh.machine is not before
        assert fresh.device_info().name == "T4"
        assert session.cp().get_default_memory_pool().used_bytes() == 0
    with session.use_bench_device(session.find_table_info("H200"), 2, "host") as other:
        assert [device.info.sm_count for device in other.machine.devices] == [132] * 2
        assert other.machine.links.topology == "host"
    assert machine.current() is before
    assert float(x.sum()) == 8
    assert session.real_cp() is None
    assert session.virtual_side().machine is before
    assert session.find_twin() is None


def test_published_numbers_of_devices() -> None:
    gl.use_device("virtual:H200", count=2)
    assert session.compute_peer_gbps(is_direct=True) > 5 * session.compute_peer_gbps(is_direct=False)
    assert session.compute_l1_bytes(session.find_table_info("H200")) == 256 << 10
    assert session.compute_l1_bytes(session.find_table_info("T4")) == 64 << 10
    assert session.find_ceilings().gbps["DRAM"] == session.backend().device_info().memory_bandwidth_gbps


@pytest.mark.parametrize("count", [0, -1, 1.5, True, 1000])
def test_invalid_device_counts_are_refused(count: object) -> None:
    with pytest.raises(ValueError, match="integer number of devices"):
        gl.use_device("T4", count=count)  # type: ignore[arg-type]


def test_environment_variables_select_device_and_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("soon", "0", "-1", "nan"):
        monkeypatch.setenv("GPULAB_WATCHDOG_S", text)
        with pytest.raises(ValueError, match=f"GPULAB_WATCHDOG_S={text} is not a number of seconds above 0"):
            gl.use_device("T4")
    monkeypatch.setenv("GPULAB_DEVICE", "virtual:L4")
    monkeypatch.setenv("GPULAB_WATCHDOG_S", "2.5")
    assert gl.which_device().device == "L4"
    assert machine.current().devices[0].watchdog_s == 2.5


@pytest.mark.parametrize(("value", "error"), [("H20", UnknownDeviceError), ("cuda", CudaUnavailableError)])
def test_error_names_the_wrong_environment_variable(
    monkeypatch: pytest.MonkeyPatch, no_cupy: None, value: str, error: type[Exception]
) -> None:
    monkeypatch.setenv("GPULAB_DEVICE", value)
    with pytest.raises(error, match=f"^GPULAB_DEVICE={value}: "):
        from gpulab import cp  # noqa: F401


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


def test_bound_callback_runs_on_its_device_until_a_change() -> None:
    gl.use_device("virtual:H200", count=2)
    cp = session.cp()
    with cp.cuda.Device(1):
        on_its_device = session.bind_current_device()
    devices = []

    def callback() -> None:
        with on_its_device():
            devices.append(cp.cuda.Device().id)

    thread = threading.Thread(target=callback)
    thread.start()
    thread.join()
    assert devices == [1]
    gl.use_device("T4")
    with pytest.raises(GpulabError, match="Run the cell"), on_its_device():
        pass


def test_on_device_selects_another_device_within_a_block() -> None:
    gl.use_device("T4")
    before = machine.current()
    choice = gl.which_device()
    with session.on_device("virtual:H200", 2, "host") as cp:
        assert (gl.which_device().count, gl.which_device().links) == (2, "host")
        assert len(machine.current().devices) == 2
        assert cp is session.cp()
    assert machine.current() is before
    assert gl.which_device() is choice
    with pytest.raises(RuntimeError, match="inside"), session.on_device("L4"):
        raise RuntimeError("inside")
    assert machine.current() is before


def test_a_gpu_is_looked_for_again_at_every_choice(fake_cupy: FakeCupy) -> None:
    fake_cupy(count=100)
    assert gl.use_device("auto").kind == "virtual"
    sys.modules.pop("cupy")
    fake_cupy()
    assert gl.use_device("auto").kind == "cuda"
    assert gl.use_device("cuda").kind == "cuda"
    sys.modules.pop("cupy")
    fake_cupy(synchronize=999)
    with pytest.raises(CudaUnavailableError, match="cannot be used"):
        gl.use_device("cuda")
