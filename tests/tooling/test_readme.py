"""Commands, files, functions and links in the README and the documents exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gpulab import cli

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PATHS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
DOCUMENTS = [path.read_text(encoding="utf-8") for path in PATHS]
MAKE_TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]


def test_make_commands_exist() -> None:
    names = {name for text in DOCUMENTS for name in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.M)}
    assert names & {"lab", "test", "test-gpu"} == {"lab", "test", "test-gpu"}
    assert {
        name for name in names if name in MAKE_TARGETS or f"`make {name}" in "".join(DOCUMENTS)
    } <= MAKE_TARGETS


def test_make_help_lists_the_commands_of_the_readme() -> None:
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in re.findall(r"^make ([a-z-]+)", README, re.M):
        assert name == "help" or f"make {name} " in done.stdout, name


@pytest.mark.parametrize("text", DOCUMENTS, ids=[path.stem for path in PATHS])
def test_files_and_tools_named_in_the_text_exist(text: str) -> None:
    names = set(re.findall(r"`((?:gpulab|virtualgpu|tests|tools|notebooks)/[\w./-]+)`", text))
    names |= {f"{name.replace('.', '/')}.py" for name in re.findall(r"python -m (tools(?:\.\w+)+)", text)}
    assert not [name for name in sorted(names) if not (ROOT / name).exists() and "NN" not in name]


def test_gpulab_commands_exist() -> None:
    names = {name for text in DOCUMENTS for name in re.findall(r"`gpulab ([a-z]+)`", text)}
    assert names >= {"lab", "doctor", "bench"}
    for name in names:
        with pytest.raises(SystemExit) as stop:
            cli.main([name, "--help"])
        assert stop.value.code in (0, None), name


def test_extras_exist() -> None:
    names = {extra for text in DOCUMENTS for extra in re.findall(r'"\.\[([\w-]+)\]"', text)}
    assert names >= {"cuda12", "cuda13"}
    assert names <= set(PROJECT["optional-dependencies"])


def test_public_names_exist() -> None:
    import gpulab

    names = {name for text in DOCUMENTS for name in re.findall(r"\bgl\.(\w+)\(", text)}
    functions = {name for name in gpulab.__all__ if name not in {"cp", "cupyx", "errors"}}
    assert names == functions


def test_example_runs() -> None:
    code = re.findall(r"```python\n(.*?)```", README, re.S)[0]
    code += "\nassert cp.asnumpy(c).tolist() == [2.0 * i for i in range(1000)]\n"
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "GPULAB_DEVICE": "virtual:A100"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_links_within_the_repository_exist(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[\w-]+)?\)", path.read_text(encoding="utf-8"))
    inside = [target for target in targets if not target.startswith("https://")]
    assert not [target for target in inside if not (path.parent / target).exists()]


def test_notebooks_named_in_addresses_exist() -> None:
    names = [name for text in DOCUMENTS for name in re.findall(r"lab/tree/gpulab-course/([\w.]+)", text)]
    assert names
    assert all((ROOT / "notebooks" / name).is_file() for name in names)


def test_licence_matches() -> None:
    assert PROJECT["license"] == "BSD-3-Clause"
    assert (ROOT / "LICENSE").read_text().startswith("BSD 3-Clause License")
