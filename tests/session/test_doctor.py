"""`gl.doctor` reports what is there, names what is missing, and never fails itself."""

from __future__ import annotations

import html
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gpulab as gl
from gpulab.diagnosis import Diagnosis, checks
from gpulab.diagnosis.checks import Finding
from gpulab.real import driver

ROOT = Path(gl.__file__).parents[1]


def test_the_parts_of_this_machine_are_found() -> None:
    diagnosis = gl.doctor()
    assert diagnosis["Python"].found == ".".join(map(str, sys.version_info[:3]))
    assert importlib.metadata.version("jupyterlab") in diagnosis["JupyterLab"].found
    assert importlib.metadata.version("anywidget") in diagnosis["widgets"].found
    assert diagnosis["NVRTC"].status == "ok"
    assert diagnosis["virtual GPU"].status == "ok"
    assert diagnosis.virtual_gpu
    assert not [item for item in diagnosis.findings if item.status == "wrong" and not item.remedy]
    for item in diagnosis.shown:
        assert item.subject in diagnosis.describe()
        assert html.escape(item.subject) in diagnosis._repr_html_()
    assert json.loads(json.dumps(diagnosis.to_json()))["verdict"] == diagnosis.verdict


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        ({}, 0, ["Ready", "on the virtual GPU"]),
        ({"real GPU": "ok"}, 0, ["Ready", "on the real GPU", "virtual one"]),
        ({"real GPU": "ok", "virtual GPU": "missing"}, 0, ["on the real GPU, but not"]),
        ({"virtual GPU": "missing"}, 1, ["Not ready"]),
        ({"CuPy": "wrong"}, 1, ["Not working: CuPy"]),
        ({"first cell": "wrong"}, 1, ["Not ready", "first cell"]),
    ],
)
def test_verdict_and_exit_code(status: dict[str, str], code: int, words: list[str]) -> None:
    diagnosis = of_a_machine(**status)
    assert diagnosis.exit_code == code
    assert all(word in diagnosis.verdict for word in words)


@pytest.mark.parametrize("device", ["cuda:99", "virtual:nope"])
def test_unusable_gpulab_device_is_an_error(device: str) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "gpulab", "doctor"],
        capture_output=True,
        text=True,
        env={**os.environ, "GPULAB_DEVICE": device},
    )
    assert process.returncode == 1
    assert process.stdout.startswith("Not ready")
    assert f"GPULAB_DEVICE is {device!r}: correct or unset it." in process.stdout


def test_cells_run_without_docstrings() -> None:
    """`python -OO` removes docstrings, and some of ours are made from NumPy's."""
    code = "from gpulab import cp; print(cp.arange(4).sum(), cp.exp(cp.zeros(1)))"
    process = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True)
    assert process.stdout.split() == ["6", "[1.]"], process.stderr


@pytest.mark.parametrize(
    ("versions", "status", "remedy"),
    [
        ({"virtualgpu": "1.1.0", "gpulab": "1.1.0", "gpulab-course": "1.1.0"}, "ok", ""),
        ({"virtualgpu": "1.1.0", "gpulab": "1.1.0"}, "ok", ""),
        (
            {"virtualgpu": "1.1.0", "gpulab": "1.10.0", "gpulab-course": "1.1.0"},
            "wrong",
            "pip install virtualgpu==1.10.0 gpulab==1.10.0 gpulab-course==1.10.0",
        ),
        ({}, "ok", ""),
    ],
)
def test_packages_of_different_versions_are_named(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], status: str, remedy: str
) -> None:
    monkeypatch.setattr(checks, "_find_version", versions.get)
    result = checks.check_packages()
    assert (result[0], result[2]) == (status, remedy)
    assert all(f"{name} {version}" in result[1] for name, version in versions.items())


def of_a_machine(without: str = checks.NO_DRIVER, **status: str) -> Diagnosis:
    """All findings of a machine whose lines about a GPU are `missing` unless passed otherwise."""
    known = {
        "Python": "ok",
        **dict.fromkeys(checks.GPU_SUBJECTS, "missing"),
        "NVRTC": "ok",
        "virtual GPU": "ok",
    } | status
    findings = [
        Finding(name, value, without if name == checks.DRIVER_SUBJECT else "")  # type: ignore[arg-type]
        for name, value in known.items()
    ]
    return Diagnosis(tuple(findings))


def test_the_verdict_comes_first_and_no_gpu_takes_one_line() -> None:
    diagnosis = of_a_machine()
    page = diagnosis._repr_html_()
    assert repr(diagnosis) == diagnosis.verdict
    assert str(diagnosis).startswith(f"{diagnosis.verdict}\n\nok       Python")
    assert [item.subject for item in diagnosis.shown] == ["Python", "real GPU", "NVRTC", "virtual GPU"]
    assert page.index(diagnosis.verdict) < page.index("<table")
    assert page.startswith("<details><summary>")
    assert len(diagnosis.to_json()["findings"]) == len(diagnosis.findings) == 11


def test_wrong_parts_are_shown_with_their_remedy() -> None:
    wrong = Finding("CuPy", "wrong", "two of them", "remove one")
    others = [
        Finding("Python", "ok", "3.12"),
        Finding("real GPU", "missing", ""),
        Finding("virtual GPU", "ok", ""),
    ]
    diagnosis = Diagnosis((*others, wrong))
    assert [line.split() for line in repr(diagnosis).splitlines()[1:]] == [
        ["wrong", "CuPy", "two", "of", "them"],
        ["->", "remove", "one"],
    ]
    assert diagnosis._repr_html_().startswith("<details open>")


@pytest.mark.parametrize(
    "other",
    [of_a_machine("a driver, but no CUDA device"), of_a_machine(CuPy="wrong"), of_a_machine(CUPTI="ok")],
)
def test_gpu_findings_are_shown_if_a_gpu_may_exist(other: Diagnosis) -> None:
    assert other.shown == other.findings


def test_a_missing_header_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    from virtualgpu.compile import nvrtc

    monkeypatch.setattr(checks, "_HEADER_TEST", "#include <crt/no_such_mma.h>")
    status, text, remedy = checks.check_headers()
    assert status == "missing"
    assert "crt/no_such_mma.h" in text
    assert "nvidia-cuda-crt" in remedy
    assert nvrtc.is_available()


def test_failing_check_does_not_hide_other_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks() -> checks.CheckResult:
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr(checks, "_CHECKS", (("broken part", breaks), ("Python", checks.check_python)))
    broken, python = checks.run_checks()
    assert (broken.status, broken.found) == ("wrong", "RuntimeError: first line")
    assert python.status == "ok"


def driver_of(
    code: int | None, version: tuple[int, int] | None = None, count: int = 0
) -> driver.DriverStatus:
    return driver.DriverStatus(None if code is None else "libcuda.so.1", code, version, count)


@pytest.mark.parametrize(
    ("status", "driver_result", "version_result", "words"),
    [
        (driver_of(None), "missing", "missing", "no driver library"),
        (driver_of(100, (13, 0)), "missing", "ok", "no CUDA device"),
        (driver_of(0, (13, 0), 2), "ok", "ok", "2 CUDA devices"),
        (driver_of(0, (11, 8), 1), "ok", "wrong", "1 CUDA device"),
        (driver_of(803, (13, 0)), "wrong", "ok", "differ in version"),
        (driver_of(12345), "wrong", "missing", "12345"),
    ],
)
def test_driver_states(
    monkeypatch: pytest.MonkeyPatch,
    status: driver.DriverStatus,
    driver_result: str,
    version_result: str,
    words: str,
) -> None:
    monkeypatch.setattr(checks, "query_driver_status", lambda: status)
    result, text, _ = checks.check_driver()
    assert result == driver_result
    assert words in text
    assert checks.check_cuda_version()[0] == version_result


@pytest.mark.parametrize(
    ("libraries", "code", "version", "expected"),
    [
        ((), 0, 13020, driver.DriverStatus(None, None, None, 0)),
        (("libcuda.so.1", "nvcuda.dll"), 0, 13020, driver.DriverStatus("", 0, (13, 2), 3)),
        (("libcuda.so", "nvcuda.dll"), 0, 12090, driver.DriverStatus("", 0, (12, 9), 3)),
        (("libcuda.so.1", "nvcuda.dll"), 100, 13000, driver.DriverStatus("", 100, (13, 0), 0)),
        (("libcuda.so.1", "nvcuda.dll"), 35, -1, driver.DriverStatus("", 35, None, 0)),
    ],
)
def test_the_driver_s_library_is_queried(
    libraries: tuple[str, ...],
    code: int,
    version: int,
    expected: driver.DriverStatus,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names: list[str] = []

    def fill(pointer: Any, value: int) -> int:
        pointer._obj.value = value
        return 0 if value >= 0 else 1

    def load(name: str) -> Any:
        names.append(name)
        if name not in libraries:
            raise OSError(name)
        return SimpleNamespace(
            cuInit=lambda flags: code,
            cuDriverGetVersion=lambda pointer: fill(pointer, version),
            cuDeviceGetCount=lambda pointer: fill(pointer, 3),
        )

    monkeypatch.setattr(driver.ctypes, "CDLL", load)
    status = driver.query_driver_status()
    known = ["nvcuda.dll"] if sys.platform == "win32" else ["libcuda.so.1", "libcuda.so"]
    tries = next((count for count, name in enumerate(known, 1) if name in libraries), len(known))
    assert names == known[:tries]
    assert status == (replace(expected, library=names[-1]) if libraries else expected)
    assert status.is_usable is (expected.device_count > 0)
    assert (status.problem == "") is status.is_usable


@pytest.mark.parametrize(
    ("versions", "check", "status"),
    [
        ({"ipykernel": "7.0.1"}, checks.check_jupyterlab, "wrong"),
        ({"ipykernel": "7.1.0"}, checks.check_jupyterlab, "ok"),
        ({"jupyterlab": None}, checks.check_jupyterlab, "missing"),
        ({"jupyterlab": "3.6.8"}, checks.check_jupyterlab, "wrong"),
        ({"anywidget": None}, checks.check_widgets, "missing"),
        ({"ipywidgets": "7.8.1"}, checks.check_widgets, "wrong"),
    ],
)
def test_versions_of_jupyter_and_widgets(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, str | None], check: object, status: str
) -> None:
    true_version = checks._find_version
    monkeypatch.setattr(checks, "_find_version", lambda name: versions.get(name, true_version(name)))
    result = check()  # type: ignore[operator]
    assert result[0] == status
    assert bool(result[2]) == (status != "ok")


def test_a_gpu_without_cupy_gets_the_install_command(no_cupy: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "query_driver_status", lambda: driver_of(0, (13, 0), 1))
    status, _, remedy = checks.check_cupy()
    assert (status, remedy) == ("missing", checks.INSTALL_COMMAND)


def test_cupy_newer_than_the_driver_is_wrong(fake_cupy: object, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cupy()  # type: ignore[operator]
    import cupy

    cupy.__version__ = "14.2.0"
    monkeypatch.setattr(cupy.cuda.runtime, "runtimeGetVersion", lambda: 13020, raising=False)
    monkeypatch.setattr(checks, "query_driver_status", lambda: driver_of(0, (12, 8), 1))
    status, text, remedy = checks.check_cupy()
    assert status == "wrong"
    assert "supports only CUDA 12.8" in text
    assert "gpulab[cuda12]" in remedy
    monkeypatch.setattr(checks, "query_driver_status", lambda: driver_of(0, (13, 0), 1))
    assert checks.check_cupy()[0] == "ok", "a driver runs every toolkit of its major version"


def test_the_doctor_needs_only_numpy() -> None:
    """All other packages hidden: every line still comes, and the exit code says that nothing runs."""
    code = """
import sys, importlib.abc, importlib.metadata, json, pathlib
HIDDEN = "llvmlite cuda cupy pynvml cupti jupyterlab ipywidgets anywidget matplotlib IPython".split()
class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
import importlib.util
true_find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name.split(".")[0] in HIDDEN else true_find(name, *a)
def version(name):
    raise importlib.metadata.PackageNotFoundError(name)
importlib.metadata.version = version
sys.meta_path.insert(0, Hide())
from gpulab.diagnosis import doctor
print(json.dumps(doctor().to_json()))
"""
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    result = json.loads(process.stdout)
    status = {item["part"]: item["status"] for item in result["findings"]}
    for part in ("virtual GPU", "NVRTC", "JupyterLab", "widgets", "CuPy", "NVML", "CUPTI"):
        assert status[part] == "missing", part
    assert status["Python"] == "ok"
    assert result["exit_code"] == 1


@pytest.mark.parametrize(("version", "status"), [("0.47.0", "wrong"), ("0.48.0rc1", "ok"), ("1.2", "ok")])
def test_an_llvmlite_that_breaks_every_kernel_is_named(
    monkeypatch: pytest.MonkeyPatch, version: str, status: str
) -> None:
    monkeypatch.setattr(checks, "_find_version", lambda name: version)
    result, _, remedy = checks.check_virtual_gpu()
    assert result == status
    assert remedy == ("pip install -U llvmlite" if status == "wrong" else "")
