"""Scripts of the Makefile: choice of the CuPy package, and when to install again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import environment, pick_cuda, suite

ROOT = Path(__file__).resolve().parents[2]

SMI_BANNER = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.159                Driver Version: 580.159        CUDA Version: {}     |
+-----------------------------------------+------------------------+----------------------+
"""


@pytest.mark.parametrize(
    ("version", "variables", "extra"),
    [
        ((13, 0), {}, "cuda13"),
        ((12, 4), {}, "cuda12"),
        ((14, 1), {}, "cuda13"),  # a newer driver supports older CUDA versions
        (None, {}, ""),
        (None, {"GPULAB_CUDA": "12"}, "cuda12"),
        ((12, 9), {"GPULAB_CUDA": "cuda13"}, "cuda13"),
        ((12, 9), {"GPULAB_CUDA": "12.4"}, "cuda12"),
        ((13, 0), {"GPULAB_CUDA": "none"}, ""),
    ],
)
def test_cuda_choice(version: tuple[int, int] | None, variables: dict[str, str], extra: str) -> None:
    chosen, why = pick_cuda.choose(version, variables)
    assert chosen == extra
    assert why.endswith(".")


def test_an_old_driver_gets_no_cupy_and_advice() -> None:
    extra, why = pick_cuda.choose((11, 8), {})
    assert extra == ""
    assert "update the driver" in why


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (SMI_BANNER.format("13.0"), (13, 0)),
        (SMI_BANNER.format("12.10"), (12, 10)),
        (SMI_BANNER.format("13.1").replace("CUDA Version", "CUDA UMD Version"), (13, 1)),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", None),
    ],
)
def test_nvidia_smi_banner(text: str, version: tuple[int, int] | None) -> None:
    assert pick_cuda.from_smi_text(text) == version


def fake_program(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
@pytest.mark.parametrize(("gpus", "version"), [("GPU 0: NVIDIA H200 (UUID: GPU-1)", (12, 8)), ("", None)])
def test_nvidia_smi_without_a_gpu_counts_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: str, version: tuple[int, int] | None
) -> None:
    banner = SMI_BANNER.format("12.8")
    fake_program(tmp_path, "nvidia-smi", f'if [ "$1" = -L ]; then echo "{gpus}"; else echo "{banner}"; fi')
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert pick_cuda.from_nvidia_smi() == version


@pytest.mark.parametrize(
    ("stamp", "groups", "install"),
    [
        (None, set(), set()),
        (None, {"test"}, {"test"}),
        ({"key": "k", "groups": ["test"]}, set(), None),
        ({"key": "k", "groups": ["test"]}, {"test"}, None),
        ({"key": "k", "groups": ["test"]}, {"bench"}, {"bench", "test"}),
        ({"key": "old", "groups": ["test"]}, set(), set()),
        ({"key": "k"}, {"test"}, {"test"}),
    ],
)
def test_missing_groups_are_installed(
    stamp: dict[str, object] | None, groups: set[str], install: set[str] | None
) -> None:
    assert environment.find_missing_groups(stamp, "k", groups) == install


def _files() -> list[bytes]:
    return [file.read_bytes() for file in environment.list_project_files()]


def test_pip_installs_three_packages_and_the_groups() -> None:
    arguments = environment.list_requirements(["test"], "cuda13")
    assert arguments[:6:2] == ["-e", "-e", "-e"]
    assert [Path(name).name for name in arguments[1:6:2]] == ["virtualgpu", "gpulab[cuda13]", "gpulab_course"]
    assert {"pytest", "ruff"} <= {re.split(r"[<>=]", name)[0] for name in arguments[6:]}


def test_reused_environment_installs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPULAB_CUDA", "none")
    python = environment.find_python(tmp_path)
    python.parent.mkdir()
    python.touch()
    version = ".".join(map(str, sys.version_info[:2]))
    key = environment.make_fingerprint(_files(), version, "", str(ROOT))
    (tmp_path / environment.STAMP).write_text(json.dumps({"key": key, "groups": ["test"]}))
    monkeypatch.setattr(environment.subprocess, "run", lambda *a, **k: pytest.fail("ran a program"))
    environment.main(["--venv", str(tmp_path), "--groups", "test"])


@pytest.mark.parametrize(
    ("version_", "keep", "recreated"), [("3.99", False, True), ("3.99", True, False), (None, True, True)]
)
def test_an_environment_of_another_python_is_replaced_unless_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version_: str | None, keep: bool, recreated: bool
) -> None:
    monkeypatch.setenv("GPULAB_CUDA", "none")
    if version_:
        (tmp_path / "pyvenv.cfg").write_text(f"home = somewhere\nversion = {version_}.1\n")
    monkeypatch.setattr(environment, "is_working", lambda python: True)
    created: list[Path] = []
    monkeypatch.setattr(environment, "create", created.append)
    monkeypatch.setattr(environment.subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, 0))
    environment.main(["--venv", str(tmp_path), *(["--keep-python"] if keep else [])])
    assert created == ([tmp_path] if recreated else [])
    version = ".".join(map(str, sys.version_info[:2])) if recreated else version_
    key = environment.make_fingerprint(_files(), str(version), "", str(ROOT))
    assert environment.read_stamp(tmp_path) == {"key": key, "groups": []}


def test_make_and_ci_name_stages_that_exist() -> None:
    everywhere = re.search(r"^STAGES \?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    in_ci = re.search(r'^make test STAGES="(.*)"$', (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert everywhere is not None
    assert in_ci is not None
    assert set(everywhere[1].split()) < set(in_ci[1].split()) <= set(suite.STAGES)
    command = ["make", "--dry-run", "test", "STAGES=lint types"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "tools.suite lint types" in done.stdout
