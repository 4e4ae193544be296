"""The runner that plants faults: its rooms and their tests are there."""

from __future__ import annotations

import pytest

from tests.test_architecture import ROOT
from tools.mutate import ROOMS


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
        folder for folder in folders if folder not in ROOMS and not folder.startswith("gpulab/course/")
    )
