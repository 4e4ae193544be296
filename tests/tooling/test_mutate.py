"""The runner that plants faults: its rooms and their tests are there."""

from __future__ import annotations

import pytest

from tests.test_architecture import ROOT
from tools.mutate import ROOMS


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_and_their_tests_exist(room: str) -> None:
    """A path that is not there would be left out without a word, and the room look worse than it is."""
    assert (ROOT / room).is_dir()
    assert not [test for test in ROOMS[room] if not (ROOT / test).exists()]
