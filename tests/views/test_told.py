"""What a table says changes only when somebody means it to, and reads it."""

from __future__ import annotations

import pytest

from tests.views import told


@pytest.mark.parametrize("name", told.ALL)
def test_a_table_says_what_it_said_when_it_was_read(name: str) -> None:
    wanted = told.kept(name).read_text(encoding="utf-8").splitlines()
    assert told.lines(told.ALL[name]()) == wanted, "if that is meant: python -m tests.views.told, and read"


def test_every_table_that_was_read_is_there() -> None:
    assert {path.name for path in told.FOLDER.iterdir()} == {told.kept(name).name for name in told.ALL}
