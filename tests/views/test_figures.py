"""Properties of every matplotlib chart: axes, pictures in two themes, alternative text, files."""

from __future__ import annotations

import base64
import html
import io
import re
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from gpulab.views.parts import palette
from tests.views import unusual
from tests.views.every_view import VIEWS
from tests.views.makers import FIGURES

UNUSUAL = {
    name: make for name, make in unusual.ALL.items() if name.split()[0] in ("roofline", "occupancy", "three")
}


@pytest.fixture(params=FIGURES, scope="module")
def chart(request: pytest.FixtureRequest) -> Any:
    return FIGURES[request.param]()


@pytest.fixture(scope="module")
def bundle(chart: Any) -> Any:
    """What JupyterLab gets of a chart, drawn once."""
    return chart._repr_mimebundle_()


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)


def test_pictures_have_alternative_text_and_light_and_dark_themes(chart: Any, bundle: Any) -> None:
    data, metadata = bundle
    assert data["text/plain"] == repr(chart)
    light = base64.b64decode(data["image/png"])
    assert metadata["image/png"] == {
        "width": 900,
        "height": Image.open(io.BytesIO(light)).height // 2,
        "alt": chart.describe(),
    }
    assert metadata["needs_background"] == "light"
    (image,) = re.findall(r"<img [^>]*>", data["text/html"])
    assert html.unescape(re.search('alt="([^"]*)"', image)[1]) == chart.describe()  # type: ignore[index]
    assert f"base64,{data['image/png']}" in image
    (dark,) = set(re.findall(r"content: url\(data:image/png;base64,([^)]*)\)", data["text/html"]))
    for png, index in ((light, 0), (base64.b64decode(dark), 1)):
        shown = pixels(png)
        assert shown.shape[1] == 1800
        ground = [*bytes.fromhex(palette.COLOURS["bg"][index][1:])]
        frame = np.concatenate(
            [shown[:4].reshape(-1, 3), shown[:, :8].reshape(-1, 3), shown[:, -3:].reshape(-1, 3)]
        )
        assert (np.abs(frame - ground).max(axis=1) < 8).all(), "text that is cut off reaches the edge"
        ink = np.abs(shown - ground).max(axis=2) > 60
        assert 0.02 < ink.mean() < 0.4


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_charts_are_not_cut_off_at_the_edge(name: str) -> None:
    image = pixels(UNUSUAL[name]().png())
    edges = np.concatenate(
        [image[:4].reshape(-1, 3), image[-4:].reshape(-1, 3), image[:, -3:].reshape(-1, 3)]
    )
    assert (edges > 240).all()


def test_plot_draws_on_given_axes_or_makes_them(chart: Any) -> None:
    from matplotlib import pyplot

    axes_ = chart.plot()
    assert all(isinstance(ax, Axes) for ax in np.ravel(axes_))
    assert np.ravel(axes_)[0].figure in [pyplot.figure(number) for number in pyplot.get_fignums()]
    pyplot.close("all")
    panels = len(chart.panel_widths)
    given = Figure().subplots(1, panels, squeeze=False)[0]
    assert chart.plot(given) is given
    assert all(ax.has_data() for ax in given)
    assert given[0].get_title(loc="left").startswith(f"{chart.title}\n")
    assert "on A100-SXM4-80GB" in given[0].get_title(loc="left").replace("\n", " ")
    alone = Figure().subplots()
    assert chart.plot(ax=alone) is alone
    assert alone.has_data()


def test_plot_colours_match_the_background() -> None:
    chart = FIGURES["ladder"]()
    for ground, index in (("white", 0), ("black", 1)):
        with matplotlib.rc_context({"axes.facecolor": ground}):
            line = chart.plot(Figure().subplots()).lines[0]
        assert line.get_color() == palette.COLOURS["accent"][index]


def test_pictures_neither_use_nor_change_matplotlib_settings() -> None:
    chart = FIGURES["ladder"]()
    expected = chart.png()
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red"}):
        before = dict(matplotlib.rcParams)
        assert chart.png() == expected
        assert dict(matplotlib.rcParams) == before


def test_each_chart_has_tables_that_its_html_contains(chart: Any, bundle: Any) -> None:
    for table in chart.tables():
        assert table.title
        assert table.rows
        assert len(set(table.headings)) == len(table.headings)
        assert html.escape(table.title) in bundle[0]["text/html"]


def test_precision_view_draws_the_bits_of_each_format() -> None:
    view = VIEWS["precision"]()
    ax = view.plot(Figure().subplots())
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        rounded_.form.name for rounded_ in view.record
    ]
    for row, rounded in enumerate(view.record):
        bits = [text.get_text() for text in ax.texts if text.get_position()[1] == row]
        assert "".join(bits) == "".join(rounded.form.parts(rounded.code))
    assert ax.get_title(loc="left").startswith("0.1, to the nearest number")
    (table,) = view.tables()
    assert [row[1] for row in table.rows] == [float(rounded_.value) for rounded_ in view.record]
    assert VIEWS["precision of much"]().tables()[0].rows[0][4] is None
    view.close()
