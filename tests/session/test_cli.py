"""The ``gpulab`` command, run as a learner runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import gpulab
from gpulab import cli

ROOT = Path(gpulab.__file__).parents[1]


def run(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpulab.cli", *arguments], cwd=cwd, capture_output=True, text=True, timeout=120
    )


def test_version() -> None:
    done = run("--version")
    assert done.stdout.strip() == f"gpulab {metadata.version('gpulab')}"


def test_the_console_script_is_registered() -> None:
    scripts = metadata.distribution("gpulab").entry_points.select(group="console_scripts", name="gpulab")
    assert [script.load() for script in scripts] == [cli.main]


def test_doctor_prints_a_table_and_json() -> None:
    done = run("doctor")
    data = json.loads(run("doctor", "--json").stdout)
    assert done.returncode == data["exit_code"]
    assert done.stdout.splitlines()[0] == data["verdict"]
    assert len(data["findings"]) > 10


@pytest.mark.parametrize("arguments", [("nonsense",), ("doctor", "--nonsense"), ()])
def test_wrong_use_is_two_lines_and_no_traceback(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "usage: gpulab" in done.stderr
    assert "Traceback" not in done.stderr


def test_lab_passes_arguments_on_to_jupyterlab(tmp_path: Path) -> None:
    done = run("lab", "--version", cwd=tmp_path)
    assert done.stdout.strip() == metadata.version("jupyterlab")


@pytest.mark.parametrize(("user", "added"), [(0, ["--allow-root"]), (1000, [])])
def test_lab_opens_the_first_notebook_in_its_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, user: int, added: list[str]
) -> None:
    for name in ("01_b.ipynb", "00_a.ipynb"):
        (tmp_path / name).write_text("{}")
    script = tmp_path / "python"
    # Folders may have spaces in their names, this checkout's too: one word a line, no path after "#!".
    script.write_text('#!/bin/sh\nprintf "%s\\n" "$PWD" "$@"\nexit 7\n')
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setattr(cli.os, "geteuid", lambda: user, raising=False)
    read = tmp_path / "out"
    with read.open("w") as stream:
        real = subprocess.Popen
        monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: real(*a, stdout=stream, **k))
        assert cli.main(["lab", "--notebooks", str(tmp_path), "--no-browser", "--port=9"]) == 7
    folder, *words = read.read_text().splitlines()
    (settings,) = [word for word in words if word.startswith("--LabApp.app_settings_dir=")]
    assert json.loads((Path(settings.split("=")[1]) / "overrides.json").read_text())
    words.remove(settings)
    words.remove("--LabApp.default_url=/lab/tree/00_a.ipynb")
    assert folder == str(tmp_path.resolve())
    assert words == ["-m", "jupyterlab", *added, "--no-browser", "--port=9", "00_a.ipynb"]


def test_a_hub_gets_a_server_in_place_of_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The hub ends the process it has started: a child of it would live on."""
    started: list[list[str]] = []

    def replaced(program: str, words: list[str]) -> None:
        assert Path.cwd() == tmp_path / "course"
        started.append(words)
        raise SystemExit(0)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli.os, "execv", replaced)
    with pytest.raises(SystemExit):
        cli.main(["lab", "--hub", "--folder", "course"])
    (words,) = started
    assert words[1:3] == ["-m", "jupyterhub.singleuser"]
    (front,) = [word for word in words if word.startswith("--ServerApp.default_url=/lab/tree/00")]
    assert (tmp_path / "course" / front.rpartition("/")[2]).is_file()
    assert not words[-1].endswith(".ipynb") or words[-1] == front, "a hub opens no browser"


def test_lab_without_notebooks_says_where_to_run_it(tmp_path: Path) -> None:
    done = run("lab", "--notebooks", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("gpulab: ")
    assert "holds no notebook" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["bench", "record"])
def test_developers_commands_are_found_in_the_checkout(command: str, tmp_path: Path) -> None:
    done = run(command, "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"usage: gpulab {command}" in done.stdout


@pytest.mark.parametrize("command", ["bench", "record"])
def test_developers_commands_say_that_they_need_a_checkout(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "__file__", str(tmp_path / "site-packages" / "gpulab" / "cli.py"))
    assert cli.main([command]) == 1
    said = capsys.readouterr().err
    assert "run it in a checkout of gpulab" in said
    assert said.count("\n") == 1
