"""Charts without interaction, drawn by matplotlib and shown as an image with alternative text."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill, wrap
from typing import TYPE_CHECKING, Any, Literal

import matplotlib
import numpy as np
from matplotlib import style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from PIL import Image

from gpulab.views._saving import Savable, Writers, make_text_writer
from gpulab.views.parts import palette
from gpulab.views.tables import HasTables, Table
from gpulab.words import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Theme = Literal["light", "dark"]
Painter = Callable[["Axes"], None]
WIDTH_IN = 9.0
DPI = 100
SHARPNESS = 2  # factor of the pixels, so that an enlarged picture stays sharp
MAX_CAPTION_LENGTH = 150
SMALL_FONT_POINTS = 7.2
_PALETTE_COLOURS = 160
# matplotlib's settings belong to the whole process.
_drawing_lock = threading.Lock()


def colour(name: str) -> str:
    """Return a named colour of the palette that suits the current light or dark background of matplotlib."""
    background = matplotlib.rcParams["axes.facecolor"]
    is_dark = sum(to_rgb(background)) < 1.5
    return palette.COLOURS[name][is_dark]


def number_ticks(ax: Axes, direction: Literal["x", "y"], multiples: Sequence[float]) -> None:
    """Format the ticks of a logarithmic axis as plain numbers."""
    axis = ax.xaxis if direction == "x" else ax.yaxis
    axis.set_major_locator(LogLocator(subs=multiples))
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axis.set_minor_locator(NullLocator())


class FigureView(HasTables, Savable):
    """A matplotlib chart that can also be shown as a sentence (``repr``), a text, a PNG or an HTML page.

    Subclasses implement `record`, `sentence`, `describe` and `painters`.

    Parameters
    ----------
    title
        The heading of the chart.
    caption
        The contents of the chart, and the origin of its numbers.
    source
        The source of the numbers, such as ``"measured"``.
    """

    height_in = 3.6
    panel_widths: tuple[float, ...] = (1.0,)
    """The relative widths of the panels."""

    def __init__(self, title: str, caption: str, source: str) -> None:
        self.title = title
        self.caption = caption
        self.source = source

    @property
    def record(self) -> Any:
        """The record that the chart displays, or a tuple of records."""
        raise NotImplementedError

    def sentence(self) -> str:
        """Return one sentence about the contents of the chart and the origin of its numbers."""
        raise NotImplementedError

    def describe(self) -> str:
        """Return a description of the chart in words. The description is the alternative text of the
        image.
        """
        raise NotImplementedError

    def painters(self) -> Sequence[Painter]:
        """Return the functions that draw the panels of the chart from left to right. Each function takes the
        axes of its panel.
        """
        raise NotImplementedError

    def tables(self) -> tuple[Table, ...]:
        """Return tables with the numbers of the chart."""
        return ()

    def notes(self) -> Sequence[str]:
        """Return the sentences that are shown above the caption of the chart."""
        return ()

    def plot(self, ax: Any = None) -> Any:
        """Draw the chart with matplotlib.

        Parameters
        ----------
        ax
            Axes to draw on, or one for each panel. Without them a new pyplot figure is made.

        Returns
        -------
        matplotlib.axes.Axes
            The axes; an array of them if the chart has several panels.

        Examples
        --------
        >>> ax = gl.occupancy(kernel).plot()
        >>> ax.figure.savefig("occupancy.svg")
        """
        if ax is None:
            from matplotlib import pyplot

            return self._compose(pyplot.figure(figsize=(WIDTH_IN, self.height_in)))
        axes = np.ravel(ax)
        for painter, panel_axes in zip(self.painters(), axes, strict=False):
            painter(panel_axes)
        axes[0].set_title(f"{self.title}\n{fill(self.caption, 70)}", loc="left", fontsize="small")
        return ax

    def _compose(self, figure: Figure) -> Any:
        """Draw the panels, the title and the caption on an empty figure, and return the axes."""
        figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.06, wspace=0.04)
        axes = figure.subplots(1, len(self.panel_widths), width_ratios=self.panel_widths, squeeze=False)[0]
        for painter, panel_axes in zip(self.painters(), axes, strict=True):
            painter(panel_axes)
        figure.suptitle(self.title, x=0.013, ha="left", weight="bold", fontsize=11)
        footer_text = "\n".join(
            line for text in (" ".join(self.notes()), self.caption) for line in wrap(text, MAX_CAPTION_LENGTH)
        )
        figure.supxlabel(
            footer_text,
            x=0.013,
            ha="left",
            fontsize=SMALL_FONT_POINTS,
            color=colour("muted"),
        )
        return axes if len(axes) > 1 else axes[0]

    @contextmanager
    def _draw_figure(self, theme: Theme) -> Iterator[Any]:
        """Draw the chart on a canvas, in the colours of a theme."""
        with _drawing_lock, style.context(["default", _make_settings(theme)]):
            figure = Figure(figsize=(WIDTH_IN, self.height_in), dpi=DPI * SHARPNESS)
            self._compose(figure)
            yield FigureCanvasAgg(figure)

    def png(self, theme: Theme = "light") -> bytes:
        """Return the chart as PNG for a light or dark background. The nominal width is 900 pixels."""
        with self._draw_figure(theme) as canvas:
            canvas.draw()
            image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
        buffer = io.BytesIO()
        image.quantize(_PALETTE_COLOURS, dither=Image.Dither.NONE).save(buffer, "PNG")
        return buffer.getvalue()

    def html(self) -> str:
        """Return an HTML page with the chart, its tables and its description. The page needs no other
        files.
        """
        dark_style = f"background: {palette.COLOURS['bg'][1]}; color: {palette.COLOURS['fg'][1]}"
        dark_rule = f"@media (prefers-color-scheme: dark) {{ body {{ {dark_style} }} }}"
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(self.title)}'
            f"</title><style>body {{ font-family: system-ui, sans-serif }}\n{dark_rule}</style></head>\n"
            f"<body>{self._repr_html_()}<details><summary>Description</summary>"
            f"<pre>{html.escape(self.describe())}</pre></details></body></html>\n"
        )

    def _make_writers(self) -> Writers:
        write_page = make_text_writer(self.html)

        def save_drawing(path: Path) -> None:
            with self._draw_figure("light") as canvas:
                canvas.figure.savefig(path)

        return {
            ".html": write_page,
            ".htm": write_page,
            ".png": lambda path: path.write_bytes(self.png()),
            ".svg": save_drawing,
            ".pdf": save_drawing,
        }

    def __repr__(self) -> str:
        return self.sentence()

    def _repr_html_(self) -> str:
        return self._make_html(self.png("light"))

    def _make_html(self, light_png: bytes) -> str:
        """Return the chart as HTML: the image, a dark version for dark pages, and folded tables."""
        picture_class = f"gl-figure-{hashlib.sha256(light_png).hexdigest()[:10]}"
        dark_rule = palette.make_dark_rule(
            f"img.{picture_class}", f"content: url({_make_data_url(self.png('dark'))})"
        )
        image_html = (
            f'<img class="{picture_class}" width="{WIDTH_IN * DPI:.0f}" style="max-width:100%" '
            f'alt="{html.escape(self.describe())}" src="{_make_data_url(light_png)}">'
        )
        tables_html = "".join(
            f"<details><summary>{html.escape(table.title)}</summary>{table.html()}</details>"
            for table in self.tables()
        )
        return f"<div><style>{dark_rule}</style>{image_html}{tables_html}</div>"

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        light_png = self.png("light")
        bundle_data = {
            "text/plain": repr(self),
            "text/html": self._make_html(light_png),
            "image/png": base64.b64encode(light_png).decode("ascii"),
        }
        height_px = Image.open(io.BytesIO(light_png)).height // SHARPNESS
        image_metadata = {"width": round(WIDTH_IN * DPI), "height": height_px, "alt": self.describe()}
        return bundle_data, {"image/png": image_metadata, **palette.LIGHT_METADATA}


def _make_data_url(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"


def _make_settings(theme: Theme) -> dict[str, Any]:
    """Return the matplotlib settings for the colours of a theme."""
    theme_index = ("light", "dark").index(theme)
    text_colour, muted_colour, background_colour, rule_colour, grid_colour = (
        palette.COLOURS[picture_class][theme_index] for picture_class in ("fg", "muted", "bg", "rule", "grid")
    )
    return {
        "figure.facecolor": background_colour,
        "savefig.facecolor": background_colour,
        "axes.facecolor": background_colour,
        "axes.edgecolor": rule_colour,
        "axes.labelcolor": muted_colour,
        "axes.titlecolor": text_colour,
        "text.color": text_colour,
        "xtick.color": rule_colour,
        "ytick.color": rule_colour,
        "xtick.labelcolor": text_colour,
        "ytick.labelcolor": text_colour,
        "grid.color": grid_colour,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "font.family": "DejaVu Sans",
        "font.size": 8,
        "axes.titlesize": 8.5,
        "legend.frameon": False,
        "legend.fontsize": 8,
    }
