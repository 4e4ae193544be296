"""The runner that plants faults: its rooms and their tests are there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_architecture import ROOT
from tools.mutate import ROOMS
from tools.passed import Passed, environment


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_and_their_tests_exist(room: str) -> None:
    """A path that is not there would be left out without a word, and the room look worse than it is."""
    assert (ROOT / room).is_dir()
    assert not [test for test in ROOMS[room] if not (ROOT / test.removeprefix("gpu:")).exists()]


def test_each_folder_of_the_helper_has_tests_of_its_own() -> None:
    """Those of the course are judged by their right and wrong answers."""
    with_modules = {file.parent for file in (ROOT / "gpulab").rglob("*.py") if file.name != "__init__.py"}
    folders = {folder.relative_to(ROOT).as_posix() for folder in with_modules} - {"gpulab"}
    assert not sorted(
        folder
        for folder in folders
        if folder not in ROOMS and not folder.startswith("gpulab_course/content/")
    )


CHILDREN = """
import os, signal, sys
from room.work import forked, killed, started
if not os.fork():
    forked()
    os._exit(1)
os.wait()
if not os.fork():
    killed()
    os.kill(os.getpid(), signal.SIGKILL)
os.wait()
exec(sys.argv[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_lines_of_every_process_of_a_test_are_seen(tmp_path: Path) -> None:
    names = ["forked", "killed", "started", "never"]
    room = tmp_path / "room"
    other = tmp_path / "other"
    for folder in (room, other):
        folder.mkdir()
        (folder / "work.py").write_text("".join(f"def {name}():\n    return 1\n" for name in names))
    watching = Passed(room, tmp_path / "shared")
    variables = environment(room, tmp_path / "shared", tmp_path)
    path = os.pathsep.join([variables["PYTHONPATH"], str(ROOT), str(tmp_path)])

    def run(code: str) -> dict[str, list[int]]:
        command = [sys.executable, "-c", CHILDREN, code]
        subprocess.run(command, env={**os.environ, **variables, "PYTHONPATH": path}, check=True)
        return watching.taken()

    assert run("import other.work; other.work.never()") == {str(room / "work.py"): [1, 2, 3, 4, 5, 7]}
    assert run("started()") == {str(room / "work.py"): [1, 2, 3, 4, 5, 6, 7]}
    assert watching.taken() == {}
