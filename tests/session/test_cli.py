"""The ``gpulab`` command, run as a learner runs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import gpulab
from gpulab import cli
from gpulab_course import cli as course

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


def test_the_course_adds_its_commands() -> None:
    shown = run("--help").stdout
    commands = metadata.distribution("gpulab-course").entry_points.select(group=cli.COMMANDS)
    assert {"lab", "check", "report"} <= {command.name for command in commands}
    assert all(re.search(rf"^    {command.name}\b", shown, re.M) for command in commands)
    assert "Open your copies" in run("lab", "--help").stdout


def test_without_the_course_its_commands_name_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli.metadata, "entry_points", lambda **_: ())
    assert cli.main(["lab"]) == 1
    assert "pip install gpulab-course" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert "doctor" in capsys.readouterr().out


def test_doctor_prints_a_line_a_table_and_json() -> None:
    done = run("doctor")
    details = run("doctor", "--details").stdout.splitlines()
    assert (details[0], len(details) > 8) == (done.stdout.splitlines()[0], True)
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


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """Folder and words of each program that takes this process's place."""
    calls: list[list[str]] = []

    def replaced(program: str, words: list[str]) -> None:
        assert program == words[0]
        calls.append([str(Path.cwd()), *words[1:]])
        raise SystemExit(7)

    monkeypatch.chdir(tmp_path)  # and back
    monkeypatch.setattr(course.os, "execv", replaced)
    return calls


@pytest.mark.skipif(os.name == "nt", reason="Windows has no exec")
@pytest.mark.parametrize(("user", "added"), [(0, ["--allow-root"]), (1000, [])])
def test_lab_opens_the_first_notebook_in_its_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, started: list[list[str]], user: int, added: list[str]
) -> None:
    for name in ("01_b.ipynb", "00_a.ipynb"):
        (tmp_path / name).write_text("{}")
    monkeypatch.setattr(course.os, "geteuid", lambda: user, raising=False)
    with pytest.raises(SystemExit):
        cli.main(["lab", "--notebooks", str(tmp_path), "--no-browser", "--port=9"])
    ((folder, *words),) = started
    (settings,) = [word for word in words if word.startswith("--LabApp.app_settings_dir=")]
    assert json.loads((Path(settings.split("=")[1]) / "overrides.json").read_text())
    words.remove(settings)
    (colours,) = [word for word in words if word.startswith("--LabApp.extra_labextensions_path=")]
    assert (Path(colours.split("=")[1]) / "gpulab-cuda" / "package.json").is_file()
    words.remove(colours)
    words.remove("--LabApp.default_url=/lab/tree/00_a.ipynb")
    assert folder == str(tmp_path.resolve())
    assert words == ["-m", "jupyterlab", *added, "--no-browser", "--port=9", "00_a.ipynb"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no exec")
def test_a_hub_gets_a_server_that_opens_no_browser(tmp_path: Path, started: list[list[str]]) -> None:
    before = os.umask(0o022)
    try:
        with pytest.raises(SystemExit):
            cli.main(["lab", "--hub", "--folder", "course"])
        assert os.umask(before) == 0o077  # the server and its kernels write for the learner alone
    finally:
        os.umask(before)
    assert (tmp_path / "course").stat().st_mode & 0o777 == 0o700
    ((folder, *words),) = started
    assert folder == str(tmp_path / "course")
    assert words[:2] == ["-m", "jupyterhub.singleuser"]
    (front,) = [word for word in words if word.startswith("--ServerApp.default_url=/lab/tree/00")]
    assert (tmp_path / "course" / front.rpartition("/")[2]).is_file()
    assert not [word for word in words if word.endswith(".ipynb") and word != front]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no exec")
def test_whoever_ends_the_command_ends_the_server(tmp_path: Path) -> None:
    """Containers, services and hubs end the process that they have started."""
    script = tmp_path / "python"
    # Folders may have spaces in their names, this checkout's too: no path after "#!".
    script.write_text('#!/bin/sh\necho "$$"\n')
    script.chmod(0o755)
    code = f"import sys; from gpulab import cli; sys.executable = {str(script)!r}; cli.main(['lab'])"
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE) as command:
        said, _ = command.communicate(timeout=60)
    assert int(said) == command.pid


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
