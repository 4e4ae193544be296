"""How views look: pictures that a person has looked at, compared with a tolerance for other letters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib.axes import Axes
from PIL import Image

from gpulab.views import _figure
from gpulab.views.parts import palette
from gpulab.views.parts.pen import Pen
from tests.snapshot import MOST_PER_TILE, Snapshots, difference, small
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


def worst(name: str) -> float:
    """How much a view differs now from the picture that was reviewed."""
    return difference(small(VIEWS[name]().png()), Image.open(path_of(name)).convert("RGB"))


@of_this_matplotlib
def test_other_letters_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    write = Pen.text
    monkeypatch.setattr(Pen, "text", lambda self, x, y, text, **look: write(self, x + 0.5, y, text, **look))
    settings = _figure._make_settings
    monkeypatch.setattr(_figure, "_make_settings", lambda theme: settings(theme) | {"text.hinting": "none"})
    for name in ("launch", "roofline"):
        assert 0 < worst(name) <= MOST_PER_TILE, name


def test_another_colour_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(palette.COLOURS, "accent", palette.COLOURS["tail"])
    for name in ("launch", "occupancy"):
        assert worst(name) > MOST_PER_TILE, name


def test_a_missing_label_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    write = Pen.text

    def all_but_some(self: Pen, x: float, y: float, text: str, **look: Any) -> None:
        if text not in ("step", "H2D"):
            write(self, x, y, text, **look)

    monkeypatch.setattr(Pen, "text", all_but_some)
    monkeypatch.setattr(Axes, "annotate", lambda *given, **more: None)
    for name in ("stepper", "timeline", "ladder", "roofline"):
        assert worst(name) > MOST_PER_TILE, name


def test_a_swapped_axis_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = Axes.set_ylim
    monkeypatch.setattr(
        Axes,
        "set_ylim",
        lambda self, low, high=None, **more: (
            limit(self, *reversed(low), **more) if high is None else limit(self, high, low, **more)
        ),
    )
    for name in ("occupancy", "roofline"):
        assert worst(name) > MOST_PER_TILE, name


def test_each_picture_belongs_to_a_view() -> None:
    names = [*FIGURES, *WIDGETS, *(f"{name} dark" for name in DARK)]
    assert {path.name for path in FOLDER.iterdir()} == {path_of(name).name for name in names}
