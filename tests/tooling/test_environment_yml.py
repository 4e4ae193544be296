"""environment.yml has the same requirements as the pyproject.toml files."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

from tools import environment

ROOT = Path(__file__).resolve().parents[2]

# pip's name -> conda-forge's, where they differ. CUDA's own parts get their version from `cuda-version`.
CONDA_NAMES = {
    "cupy-cuda13x": "cupy",
    "nvidia-cuda-cccl": "cuda-cccl",
    "nvidia-cuda-crt": "cuda-crt-dev_linux-64",
    "nvidia-cuda-nvdisasm": "cuda-nvdisasm",
    "nvidia-cuda-nvrtc": "cuda-nvrtc",
    "nvidia-cuda-runtime": "cuda-cudart-dev",
    "playwright": "playwright-python",
}
VERSIONED_BY_CUDA = {
    "cuda-bindings",
    "cuda-cccl",
    "cuda-crt-dev_linux-64",
    "cuda-cudart-dev",
    "cuda-nvdisasm",
    "cuda-nvrtc",
}
# Wheels with no conda-forge package; the code works without them.
PIP_ONLY = {"nvidia-cuda-cupti"}
# The packages of this checkout.
OWN = {"virtualgpu", "gpulab", "gpulab-course"}
# Packages that conda needs in addition to the dependencies of the package.
CONDA_ONLY = {"cuda-crt-dev_win-64", "cuda-version", "make", "pip", "python"}


def split(requirement: str) -> tuple[str, str]:
    """``"cupy-cuda13x[ctk]>=14; ..."`` -> ("cupy-cuda13x", ">=14")."""
    text = requirement.split(";")[0].strip()
    match = re.fullmatch(r"([\w.-]+)(?:\[[\w,-]+\])?(?:\s+(\d\S*)|\s*([<>=!~].*))?", text)
    assert match, requirement
    return match[1].lower(), (match[2] or match[3] or "").replace(" ", "")


def required() -> dict[str, str]:
    """Return the requirements of the pyproject.toml files by their conda names."""
    workspace, *projects = (tomllib.loads(file.read_text()) for file in environment.list_project_files())
    requirements = [text for project in projects for text in project["project"]["dependencies"]]
    requirements += projects[1]["project"]["optional-dependencies"]["cuda13"]
    requirements += workspace["dependency-groups"]["test"]
    result = {}
    for requirement in requirements:
        name, versions = split(requirement)
        if name not in PIP_ONLY and name not in OWN:
            conda = CONDA_NAMES.get(name, name)
            result[conda] = "" if conda in VERSIONED_BY_CUDA else versions
    result["python"] = workspace["project"]["requires-python"]
    return result


def listed() -> dict[str, str]:
    """Return the packages that environment.yml lists."""
    content = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert content["channels"] == ["conda-forge"]
    return dict(split(item) for item in content["dependencies"])


def test_same_packages() -> None:
    assert set(listed()) - (CONDA_ONLY - {"python"}) == set(required())


def test_same_versions() -> None:
    conda = listed()
    assert {name: conda.get(name) for name in required()} == required()


def test_cuda_version_is_a_separate_line() -> None:
    assert listed()["cuda-version"] == "13.*"
