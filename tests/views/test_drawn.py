"""What a view says and draws changes only when somebody means it to, and looks."""

from __future__ import annotations

import pytest

from tests.views import drawn


@pytest.mark.parametrize("name", drawn.ALL)
def test_a_view_holds_what_it_held_when_it_was_looked_at(name: str) -> None:
    view = drawn.ALL[name]()
    wanted = drawn.kept(name).read_text(encoding="utf-8").splitlines()
    told = drawn.differences(wanted, drawn.lines(view))
    view.close()
    assert not told, "\n".join([*told[:30], "If that is meant: python -m tests.views.drawn, and look"])


def test_every_view_that_was_looked_at_is_there() -> None:
    assert {path.name for path in drawn.FOLDER.iterdir()} == {drawn.kept(name).name for name in drawn.ALL}


def test_what_may_differ() -> None:
    wanted = ["x: 100 at 3.5", "sum 1e-07"]
    assert not drawn.differences(wanted, ["x: 100.0002 at 3.5", "sum 2e-07"])
    assert drawn.differences(wanted, ["x: 101 at 3.5", "sum 1e-07"])
    assert drawn.differences(wanted, ["y: 100 at 3.5", "sum 1e-07"])
    assert drawn.differences(wanted, wanted[:1])
    assert drawn.differences(wanted, [*wanted, "more"])
