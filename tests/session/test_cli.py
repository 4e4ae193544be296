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

from gpulab import cli
from gpulab_course import cli as course


class Command:
    """The command in this process, with its output."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Return the exit status and the two outputs."""
        try:
            status = cli.main([*arguments])
        except SystemExit as end:
            status = int(end.code or 0)
        return status, *self.capsys.readouterr()


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def test_the_console_script_is_registered() -> None:
    scripts = metadata.distribution("gpulab").entry_points.select(group="console_scripts", name="gpulab")
    assert [script.load() for script in scripts] == [cli.main]


def test_the_course_adds_its_commands() -> None:
    """As a program of its own."""
    program = [sys.executable, "-m", "gpulab.cli", "--help"]
    text = subprocess.run(program, capture_output=True, text=True, timeout=120).stdout
    commands = metadata.distribution("gpulab-course").entry_points.select(group=cli.COMMAND_GROUP)
    assert {"lab", "check", "report"} <= {command.name for command in commands}
    assert all(re.search(rf"^    {command.name}\b", text, re.M) for command in commands)


def test_version(command: Command) -> None:
    assert command("--version")[1].strip() == f"gpulab {metadata.version('gpulab')}"


def test_without_the_course_its_commands_name_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli.metadata, "entry_points", lambda **_: ())
    assert cli.main(["lab"]) == 1
    assert "pip install gpulab-course" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert "doctor" in capsys.readouterr().out


def test_doctor_prints_a_line_a_table_or_json(command: Command) -> None:
    status, text, _ = command("doctor")
    details = command("doctor", "--details")[1].splitlines()
    data = json.loads(command("doctor", "--json")[1])
    assert text.splitlines()[0] == details[0] == data["verdict"]
    assert len(details) > 8
    assert status == data["exit_code"]
    assert len(data["findings"]) > 10


@pytest.mark.parametrize("arguments", [("nonsense",), ("doctor", "--nonsense"), ()])
def test_wrong_arguments_print_the_usage(arguments: tuple[str, ...], command: Command) -> None:
    status, _, errors = command(*arguments)
    assert status == 2
    assert "usage: gpulab" in errors


def test_lab_passes_arguments_on_to_jupyterlab(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "gpulab.cli", "lab", "--version"]
    process = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert process.stdout.strip() == metadata.version("jupyterlab")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """Folder and arguments of each program that replaces this process."""
    calls: list[list[str]] = []

    def execute(program: str, arguments: list[str]) -> None:
        assert program == arguments[0]
        calls.append([str(Path.cwd()), *arguments[1:]])
        raise SystemExit(7)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(course.os, "execv", execute)
    return calls


@pytest.mark.skipif(os.name == "nt", reason="Windows has no exec")
@pytest.mark.parametrize(("user", "options"), [(0, ["--allow-root"]), (1000, [])])
def test_lab_opens_the_first_notebook_in_its_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, started: list[list[str]], user: int, options: list[str]
) -> None:
    for name in ("01_b.ipynb", "00_a.ipynb"):
        (tmp_path / name).write_text("{}")
    monkeypatch.setattr(course.os, "geteuid", lambda: user, raising=False)
    with pytest.raises(SystemExit):
        cli.main(["lab", "--notebooks", str(tmp_path), "--no-browser", "--port=9"])
    ((folder, *words),) = started
    assert folder == str(tmp_path.resolve())
    paths = {}
    for option in ("app_settings_dir", "extra_labextensions_path"):
        (word,) = [word for word in words if word.startswith(f"--LabApp.{option}=")]
        paths[option] = Path(word.split("=")[1])
        words.remove(word)
    assert json.loads((paths["app_settings_dir"] / "overrides.json").read_text())
    assert (paths["extra_labextensions_path"] / "gpulab-cuda" / "package.json").is_file()
    words.remove("--LabApp.default_url=/lab/tree/00_a.ipynb")
    assert words == ["-m", "jupyterlab", *options, "--no-browser", "--port=9", "00_a.ipynb"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no exec")
def test_hub_server_opens_no_browser_and_keeps_files_private(
    tmp_path: Path, started: list[list[str]]
) -> None:
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
def test_the_server_replaces_the_process_of_the_command(tmp_path: Path) -> None:
    """Containers, services and hubs end the process that they have started."""
    script = tmp_path / "python"
    # Folders may have spaces in their names, this checkout's too: no path after "#!".
    script.write_text('#!/bin/sh\necho "$$"\n')
    script.chmod(0o755)
    code = f"import sys; from gpulab import cli; sys.executable = {str(script)!r}; cli.main(['lab'])"
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE) as command:
        output, _ = command.communicate(timeout=60)
    assert int(output) == command.pid


def test_lab_in_a_folder_without_notebooks_is_an_error(tmp_path: Path, command: Command) -> None:
    status, _, errors = command("lab", "--notebooks", str(tmp_path))
    assert status == 1
    assert errors.startswith("gpulab: ")
    assert "does not contain the notebook" in errors


@pytest.mark.parametrize("name", ["bench", "record"])
def test_developers_commands_need_a_checkout(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    status, text, errors = command(name, "--help")
    assert status == 0, errors
    assert f"usage: gpulab {name}" in text
    monkeypatch.setattr(cli, "__file__", str(tmp_path / "site-packages" / "gpulab" / "cli.py"))
    status, _, errors = command(name)
    assert status == 1
    assert "Run it in a checkout of gpulab" in errors
    assert errors.count("\n") == 1
