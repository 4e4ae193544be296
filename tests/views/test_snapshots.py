"""The text of views and tables against reviewed text files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.snapshot import Snapshots
from tests.views.every_table import TABLES
from tests.views.every_view import VIEWS

FOLDER = Path(__file__).with_name("snapshots")
MOST_LINES = 40


def path_of(kind: str, name: str) -> Path:
    return FOLDER / kind / f"{name.replace(' ', '_')}.txt"


def text_of(view: Any) -> str:
    """Title, sentence, description, caption and controls of a view."""
    described = view.describe().splitlines()
    left_out = len(described) - MOST_LINES
    if left_out > 0:
        described[MOST_LINES:] = [f"... and {left_out} more lines"]
    controls = [
        f"{control['label']}: {control['texts'][0]} to {control['texts'][-1]}"
        for control in getattr(view, "controls", ())
    ]
    sentence = "" if described[0] == repr(view) else repr(view)
    parts = [view.title, sentence, "\n".join(described), view.caption, "\n".join(controls)]
    return "\n\n".join(filter(None, parts)) + "\n"


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_has_its_reviewed_text(name: str, snapshots: Snapshots) -> None:
    view = VIEWS[name]()
    snapshots.text(path_of("views", name), text_of(view))


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_its_reviewed_text(name: str, snapshots: Snapshots) -> None:
    snapshots.text(path_of("tables", name), f"{TABLES[name]()!r}\n")


@pytest.mark.parametrize(("kind", "names"), [("views", VIEWS), ("tables", TABLES)])
def test_each_file_belongs_to_a_view_or_table(kind: str, names: dict[str, Any]) -> None:
    files = {path.name for path in (FOLDER / kind).iterdir()}
    assert files == {path_of(kind, name).name for name in names}
