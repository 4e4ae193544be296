"""How a box is sent and painted changes only when somebody means it to, and looks."""

from __future__ import annotations

import pytest

from tests.views import drawn, scenes


@pytest.mark.parametrize("name", scenes.ALL)
def test_a_scene_holds_what_it_held_when_it_was_looked_at(name: str) -> None:
    wanted = scenes.kept(name).read_text(encoding="utf-8").splitlines()
    told = drawn.differences(wanted, scenes.told(scenes.ALL[name]()))
    assert not told, "\n".join([*told[:30], "If that is meant: python -m tests.views.scenes, and look"])


def test_every_scene_that_was_looked_at_is_there() -> None:
    assert {path.name for path in scenes.FOLDER.iterdir()} == {scenes.kept(name).name for name in scenes.ALL}
