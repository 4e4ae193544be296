"""The wheel has the course, the sdist what it takes to test, and an editable install finds gpulab."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parents[2]


def tracked(*folders: str) -> set[str]:
    listed = subprocess.run(["git", "ls-files", "-z", *folders], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("needs a git checkout")
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}


def built(builder: type[WheelBuilder] | type[SdistBuilder], version: str, folder: Path) -> Path:
    (made,) = builder(str(ROOT)).build(directory=str(folder), versions=[version])
    return Path(made)


def test_the_wheel_carries_the_packages_and_the_course(tmp_path: Path) -> None:
    with zipfile.ZipFile(built(WheelBuilder, "standard", tmp_path)) as wheel:
        files = {name for name in wheel.namelist() if ".dist-info/" not in name}
    wanted = tracked("gpulab", "virtualgpu")
    wanted |= {f"gpulab/{name}" for name in tracked("notebooks") if name.endswith(".ipynb")}
    assert wanted - files == set()
    shared = {name for name in files if ".data/data/" in name}
    assert {name.split("/")[0] for name in files - shared} == {"gpulab", "virtualgpu"}
    assert {name.partition(".data/data/")[2] for name in shared} == {
        f"share/jupyter/labextensions/gpulab-cuda/{name}"
        for name in ("install.json", "package.json", "static/remoteEntry.js")
    }
    assert not [name for name in files if name.endswith(".pyc")]


def test_the_sdist_carries_what_it_takes_to_build_and_test(tmp_path: Path) -> None:
    with tarfile.open(built(SdistBuilder, "standard", tmp_path)) as sdist:
        files = {name.partition("/")[2] for name in sdist.getnames()}
    assert tracked() - files == set()
    assert not [name for name in files if name.startswith((".venv", "gpulab-course", "artifacts"))]


def test_an_editable_install_is_found_from_the_folder_above_a_clone(tmp_path: Path) -> None:
    """There the clone's own folder, `gpulab` without an `__init__`, stands first on the path."""
    (tmp_path / "above").mkdir()
    (tmp_path / "above" / "gpulab").symlink_to(ROOT, target_is_directory=True)
    site = tmp_path / "site"
    with zipfile.ZipFile(built(WheelBuilder, "editable", tmp_path)) as wheel:
        wheel.extractall(site)
    (path_file,) = site.glob("*.pth")
    assert path_file.read_text().split("\n") == [str(ROOT)]
    # -S: nothing else that is installed here can help.
    code = f"import site; site.addsitedir({str(site)!r}); import gpulab; print(gpulab.__file__)"
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, cwd=tmp_path / "above", capture_output=True, text=True, env={})
    assert done.stdout.strip() == str(ROOT / "gpulab" / "__init__.py"), done.stderr


def test_the_extension_that_colours_has_the_packages_version() -> None:
    folder = ROOT / "gpulab" / "data" / "labextensions" / "gpulab-cuda"
    package = json.loads((folder / "package.json").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert package["version"] == version
    assert (folder / package["jupyterlab"]["_build"]["load"]).stat().st_size < 20_000
