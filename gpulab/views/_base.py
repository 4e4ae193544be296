"""What every view shares: a widget that is also a picture and a sentence."""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import anywidget
import traitlets
from matplotlib.figure import Figure

from gpulab.views import _figure

WIDGET_MIME = "application/vnd.jupyter.widget-view+json"

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./(\w+\.js)";\n', re.MULTILINE)


def module_text(name: str) -> str:
    """The ES module ``static/<name>.js`` with the modules it imports put in front of it.

    A widget ships one module, and its code must work offline: relative imports are therefore
    joined here, and a module imported twice is joined once.
    """
    static = files("gpulab.views") / "static"
    joined: dict[str, str] = {}

    def join(file_name: str) -> None:
        if file_name in joined:
            return
        text = (static / file_name).read_text(encoding="utf-8")
        for imported in _IMPORT.findall(text):
            join(imported)
        joined[file_name] = _IMPORT.sub("", text)

    join(f"{name}.js")
    *shared, main = joined.values()
    return "\n".join(
        [re.sub(r"^export (?!default)", "", text, flags=re.MULTILINE) for text in shared] + [main]
    )


def style_text(name: str) -> str:
    """The style sheet of a view: ``base.css`` and its own."""
    static = files("gpulab.views") / "static"
    return "\n".join((static / f"{part}.css").read_text(encoding="utf-8") for part in ("base", name))


class View(anywidget.AnyWidget):
    """A widget with a sentence (``repr``), a text (``describe()``) and a PNG of the same content.

    Subclasses name their module (``class LaunchChart(View, module="launch_chart")``) and implement
    `sentence`, `describe` and `draw`. Callbacks from the browser may come on any thread: they hold
    ``self._lock`` and run inside ``self._reporting(...)``, which shows an error in the widget
    instead of raising it.
    """

    title = traitlets.Unicode("").tag(sync=True)
    caption = traitlets.Unicode("").tag(sync=True)
    source = traitlets.Unicode("").tag(sync=True)
    error = traitlets.Unicode("").tag(sync=True)

    def __init_subclass__(cls, module: str = "", **kwargs: Any) -> None:
        if module:
            cls._esm = module_text(module)
            cls._css = style_text(module)
        super().__init_subclass__(**kwargs)

    def __init__(self, **traits: Any) -> None:
        self._lock = threading.RLock()
        super().__init__(**traits)
        _close_views_of_earlier_runs(self)

    def sentence(self) -> str:
        """One sentence: what the picture shows and where its numbers come from."""
        raise NotImplementedError

    def describe(self) -> str:
        """The picture in words, for those who cannot see it."""
        raise NotImplementedError

    def draw(self) -> Figure:
        """The static picture, `_figure.WIDTH_PX` wide."""
        raise NotImplementedError

    def png(self) -> bytes:
        """The static picture as PNG, at twice its nominal pixels so that it stays sharp."""
        with self._lock:
            return _figure.png(self.draw)

    def save(self, path: str | Path) -> None:
        """Write the static picture to `path` (PNG)."""
        Path(path).write_bytes(self.png())

    def __repr__(self) -> str:
        return self.sentence()

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        data: dict[str, Any] = {"text/plain": repr(self)}
        metadata: dict[str, Any] = {}
        try:
            picture = self.png()
        except Exception as error:  # a missing picture must not take the widget with it
            data["text/plain"] += f"\n(no picture: {type(error).__name__}: {error})"
        else:
            data["image/png"] = base64.b64encode(picture).decode("ascii")
            width, height = _figure.nominal_size(picture)
            metadata["image/png"] = {"width": width, "height": height, "alt": repr(self)}
        if self.comm is not None:
            data[WIDGET_MIME] = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
        return data, metadata

    def close(self) -> None:
        """End the live view. Its picture and text still display."""
        super().close()
        # ipywidgets blanks this hook on close; the class's own still gives picture and text.
        self.__dict__.pop("_repr_mimebundle_", None)

    @contextmanager
    def _reporting(self, doing: str) -> Iterator[None]:
        """Show an error of the code inside as text in the widget; clear the last one on success."""
        try:
            yield
        except Exception as error:
            self.error = f"{doing} failed. {type(error).__name__}: {error}"
        else:
            self.error = ""


def _close_views_of_earlier_runs(view: View) -> None:
    """Close what an earlier run of the same notebook cell made: nobody can see it any more.

    The list of open views belongs to the IPython shell and lives there. Cells are told apart by
    the id the front end sends with each request; without one nothing is closed.
    """
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    request: dict[str, Any] = getattr(shell, "get_parent", dict)() or {}
    cell = request.get("metadata", {}).get("cellId")
    run = request.get("header", {}).get("msg_id")
    if not cell or not run:
        return
    kept: list[tuple[str, str, View]] = []
    for other_cell, other_run, other in getattr(shell, "_gpulab_views", ()):
        if other_cell == cell and other_run != run:
            other.close()
        elif other.comm is not None:
            kept.append((other_cell, other_run, other))
    shell._gpulab_views = [*kept, (cell, run, view)]
