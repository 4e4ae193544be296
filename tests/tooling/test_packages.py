"""Contents of the wheels, and editable installs."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from tools.environment import PACKAGES, list_project_files

ROOT = Path(__file__).resolve().parents[2]
NOT_INSTALLED = {"pyproject.toml", "hatch_build.py"}


def tracked(folder: str) -> set[str]:
    command = ["git", "ls-files", "-z", folder]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("needs a git checkout")
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}


def wheel_of(package: str, version: str, folder: Path) -> Path:
    (wheel,) = WheelBuilder(str(ROOT / package)).build(directory=str(folder), versions=[version])
    return Path(wheel)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_wheel_contains_its_package(package: str, tmp_path: Path) -> None:
    path = wheel_of(package, "standard", tmp_path)
    assert path.stat().st_size < 7_000_000
    with zipfile.ZipFile(path) as wheel:
        files = {name for name in wheel.namelist() if ".dist-info/" not in name and ".data/" not in name}
    expected = {name for name in tracked(package) if name.partition("/")[2] not in NOT_INSTALLED}
    if package == "gpulab_course":
        expected |= {f"{package}/{name}" for name in tracked("notebooks") if name.endswith(".ipynb")}
    assert expected - files == set()
    assert {name.split("/")[0] for name in files} == {package}
    assert not [name for name in files if name.endswith(".pyc")]


@pytest.mark.parametrize("version", ["standard", "editable"])
def test_the_gpulab_wheel_contains_the_syntax_highlighting_extension(version: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel_of("gpulab", version, tmp_path)) as wheel:
        shared = {name.partition(".data/data/")[2] for name in wheel.namelist() if ".data/data/" in name}
    assert shared == {
        f"share/jupyter/labextensions/gpulab-cuda/{name}"
        for name in ("install.json", "package.json", "static/remoteEntry.js")
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_an_editable_install_works_from_the_parent_of_the_clone(package: str, tmp_path: Path) -> None:
    """In that folder, the clone `gpulab`, which has no `__init__`, is first on the path."""
    (tmp_path / "above").mkdir()
    (tmp_path / "above" / package).symlink_to(ROOT, target_is_directory=True)
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel_of(package, "editable", tmp_path)) as wheel:
        wheel.extractall(site)
    assert not (site / package).exists()
    # -S: no other installed package can help.
    code = f"import site; site.addsitedir({str(site)!r}); import {package}; print({package}.__file__)"
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, cwd=tmp_path / "above", capture_output=True, text=True, env={})
    assert done.stdout.strip() == str(ROOT / package / "__init__.py"), done.stderr


def test_the_packages_have_one_version() -> None:
    projects = [tomllib.loads(file.read_text())["project"] for file in list_project_files()]
    (version,) = {project["version"] for project in projects}
    _, _, helper, course = projects
    assert f"virtualgpu=={version}" in helper["dependencies"]
    assert f"gpulab=={version}" in course["dependencies"]
    folder = ROOT / "gpulab" / "data" / "labextensions" / "gpulab-cuda"
    package = json.loads((folder / "package.json").read_text())
    assert package["version"] == version
    assert (folder / package["jupyterlab"]["_build"]["load"]).stat().st_size < 20_000


def test_the_workspace_installs_the_packages_and_their_extras() -> None:
    workspace, *projects = (tomllib.loads(file.read_text())["project"] for file in list_project_files())
    names = [text.partition(" @ ")[0] for text in workspace["dependencies"]]
    assert names == [project["name"] for project in projects]
    extras = {extra for project in projects for extra in project.get("optional-dependencies", {})}
    assert set(workspace["optional-dependencies"]) == extras
