"""Build the virtual environment that the Makefile uses, or reuse it in a moment.

``python3 -m tools.environment --venv .venv --groups test`` makes the environment if it is missing, installs
this checkout's three packages in editable mode, the named dependency groups of pyproject.toml, and the CuPy
that fits the driver, and leaves a stamp. While the pyproject.toml files, Python and the CuPy choice stay
the same, the stamp makes later runs return at once.
Standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

from tools import pick_cuda

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 11)
STAMP = "gpulab-environment.json"
# In the order of their dependencies; the second one has the extras that bring CuPy.
PACKAGES = ("virtualgpu", "gpulab", "gpulab_course")


def list_project_files(root: Path = ROOT) -> list[Path]:
    """Return the pyproject.toml files of the workspace and its packages."""
    return [root / "pyproject.toml", *(root / name / "pyproject.toml" for name in PACKAGES)]


def make_fingerprint(files: Iterable[bytes], python: str, cuda_extra: str, root: str) -> str:
    """Return a hash of the files and versions on which the environment depends."""
    hashed_parts = (*files, python.encode(), cuda_extra.encode(), root.encode())
    return hashlib.sha256(b"\0".join(hashed_parts)).hexdigest()


def find_missing_groups(stamp: dict[str, object] | None, key: str, groups: set[str]) -> set[str] | None:
    """Return the dependency groups to install, or None when the stamped environment has them all."""
    if stamp is None or stamp.get("key") != key:
        return groups
    listed_groups = stamp.get("groups")
    installed_groups = {str(name) for name in listed_groups} if isinstance(listed_groups, list) else set()
    return None if groups <= installed_groups else groups | installed_groups


def list_requirements(groups: Iterable[str], cuda_extra: str) -> list[str]:
    """Return pip's arguments: the packages in editable mode, then the requirements of the groups."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    arguments: list[str] = []
    for name in PACKAGES:
        extra_suffix = f"[{cuda_extra}]" if cuda_extra and name == "gpulab" else ""
        arguments += ["-e", f"{ROOT / name}{extra_suffix}"]
    for group_name in sorted(groups):
        arguments += table[group_name]
    return arguments


def read_stamp(venv: Path) -> dict[str, object] | None:
    """Read the stamp; None if there is none or it cannot be read."""
    try:
        stamp = json.loads((venv / STAMP).read_text())
    except (OSError, ValueError):
        return None
    return stamp if isinstance(stamp, dict) else None


def find_python(venv: Path) -> Path:
    """Return the environment's interpreter."""
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def read_version(venv: Path) -> str | None:
    """The version of an environment's Python, such as ``3.11``; None if there is no environment."""
    try:
        match = re.search(r"^version\s*=\s*(\d+\.\d+)", (venv / "pyvenv.cfg").read_text(), re.MULTILINE)
    except OSError:
        return None
    return match[1] if match else None


def is_working(python: Path) -> bool:
    """Whether the environment's Python starts and has pip (a moved environment has neither)."""
    try:
        process = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return False
    return process.returncode == 0


def create(venv: Path) -> None:
    """Create the environment, and delete an existing one first."""
    print(f"Making an environment in {venv} with Python {sys.version.split()[0]} ...", flush=True)
    process = subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)])
    if process.returncode != 0:
        raise SystemExit("Python's venv module failed. On Debian or Ubuntu: apt-get install python3-venv")


def main(arguments: list[str] | None = None) -> None:
    """Create or update the environment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", default=".venv", help="where the environment lives (default: .venv)")
    parser.add_argument(
        "--groups", default="", help="dependency groups of pyproject.toml, comma separated: test, bench"
    )
    parser.add_argument(
        "--keep-python", action="store_true", help="keep an environment of another Python than this one"
    )
    options = parser.parse_args(arguments)
    if sys.version_info < OLDEST_PYTHON:
        raise SystemExit(
            f"gpulab needs Python 3.11 or newer, this is {sys.version.split()[0]}. "
            "Name another one: make lab PYTHON=python3.12"
        )
    venv = Path(options.venv).absolute()
    cuda_extra, reason = pick_cuda.choose(pick_cuda.from_libcuda() or pick_cuda.from_nvidia_smi(), os.environ)
    python_version = ".".join(str(part) for part in sys.version_info[:2])
    existing_version = read_version(venv)
    if existing_version and options.keep_python:
        python_version = existing_version
    files = [file.read_bytes() for file in list_project_files()]
    fingerprint = make_fingerprint(files, python_version, cuda_extra, str(ROOT))
    group_names = {name for name in options.groups.split(",") if name}
    python = find_python(venv)
    groups_to_install = find_missing_groups(
        read_stamp(venv) if python.exists() else None, fingerprint, group_names
    )
    if groups_to_install is None:
        return
    if existing_version != python_version or not is_working(python):
        create(venv)
    print(reason, flush=True)
    print("Installing gpulab (the first time takes a few minutes) ...", flush=True)
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "-qq"]
    pip += list_requirements(groups_to_install, cuda_extra)
    if subprocess.run(pip).returncode != 0:
        raise SystemExit("pip could not install gpulab (its message is above). Run the same command again.")
    (venv / STAMP).write_text(
        json.dumps({"key": fingerprint, "groups": sorted(groups_to_install)}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
