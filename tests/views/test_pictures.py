"""Pictures of views against reviewed pictures, with a tolerance for other fonts."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import pytest

from tests.snapshot import Snapshots
from tests.views.every_view import VIEWS
from tests.views.makers import FIGURES

FOLDER = Path(__file__).with_name("snapshots") / "pictures"
WIDGETS = (
    "access",
    "allocator of five streams",
    "beside",
    "card",
    "fragments of a load",
    "collective ring",
    "graph of every kind",
    "launch",
    "layers",
    "load",
    "memory",
    "memory map",
    "precision",
    "stepper",
    "timeline",
    "traffic",
)
DARK = ("occupancy", "roofline")
# The version of matplotlib that drew the reviewed figures; others lay out text differently.
MATPLOTLIB = "3.11"
of_this_matplotlib = pytest.mark.skipif(
    not matplotlib.__version__.startswith(f"{MATPLOTLIB}."),
    reason=f"figures were reviewed as matplotlib {MATPLOTLIB} draws them",
)


def path_of(name: str) -> Path:
    return FOLDER / f"{name.replace(' ', '_')}.png"


@pytest.mark.parametrize("name", WIDGETS)
def test_a_view_has_its_reviewed_picture(name: str, snapshots: Snapshots) -> None:
    snapshots.picture(path_of(name), VIEWS[name]().png())


@of_this_matplotlib
@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_has_its_reviewed_picture(name: str, snapshots: Snapshots) -> None:
    snapshots.picture(path_of(name), VIEWS[name]().png())


@of_this_matplotlib
@pytest.mark.parametrize("name", DARK)
def test_a_dark_figure_has_its_reviewed_picture(name: str, snapshots: Snapshots) -> None:
    snapshots.picture(path_of(f"{name} dark"), FIGURES[name]().png("dark"))


def test_each_picture_belongs_to_a_view() -> None:
    names = [*FIGURES, *WIDGETS, *(f"{name} dark" for name in DARK)]
    assert {path.name for path in FOLDER.iterdir()} == {path_of(name).name for name in names}
