"""The base class of views, which are widgets with a static picture and a sentence."""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from importlib.resources.abc import Traversable
from posixpath import dirname, normpath
from typing import Any

import anywidget
import traitlets

from gpulab.views._saving import Savable, Writers, make_text_writer
from gpulab.views.parts import page, palette, picture
from gpulab.views.parts.boxes import Box
from gpulab.views.parts.pack import pack
from gpulab.views.tables import HasTables, Table

WIDGET_MIME = "application/vnd.jupyter.widget-view+json"

# Data and metadata of an output.
Bundle = tuple[dict[str, Any], dict[str, Any]]

_VIEWS_FOLDER = files("gpulab.views")
_IMPORT_PATTERN = re.compile(r'^import \{[^}]*\} from "((?:\.{1,2}|gpulab)/[\w./]+\.js)";\n', re.MULTILINE)


def read_module(name: str, folder: Traversable = _VIEWS_FOLDER) -> str:
    """Return the source of the ES module ``<name>.js``, preceded by the source of the modules that it
    imports.

    A widget can contain only one module, which must also work without a network connection. The imports are
    therefore joined here; a module that is imported twice is included once. A module in a `folder` of another
    package imports this package's parts as ``gpulab/parts/frame.js``.
    """
    source_by_path: dict[str, str] = {}

    def add_module(path: str, text: str) -> None:
        for import_path in _IMPORT_PATTERN.findall(text):
            module_path = import_path.removeprefix("gpulab/")
            if module_path == import_path:
                module_path = normpath(f"{dirname(path)}/{import_path}")
            if module_path not in source_by_path:
                add_module(module_path, _VIEWS_FOLDER.joinpath(module_path).read_text(encoding="utf-8"))
        source_by_path[path] = _IMPORT_PATTERN.sub("", text)

    add_module(f"{name}.js", (folder / f"{name}.js").read_text(encoding="utf-8"))
    *imported_modules, main_module = source_by_path.values()
    return "\n".join(
        [
            re.sub(r"^export (?!default)", "", import_text, flags=re.MULTILINE)
            for import_text in imported_modules
        ]
        + [main_module]
    )


def read_style(name: str) -> str:
    """Return the style sheet of a view, with the colours, the shared styles, and the styles of the view if
    there are any.
    """
    style_files = [
        _VIEWS_FOLDER.joinpath(f"{sheet_name}.css") for sheet_name in ("parts/card", "parts/parts", name)
    ]
    return palette.make_css() + "\n".join(
        style_file.read_text(encoding="utf-8") for style_file in style_files if style_file.is_file()
    )


class View(anywidget.AnyWidget, HasTables, Savable):
    """A widget that can also be shown as a sentence (``repr``), a text (``describe()``), a PNG or an HTML
    page.

    Subclasses implement `record`, `sentence`, `describe` and `draw`, and call `redraw` as soon as they have
    their record. A view with its own browser code names its module
    (``class DeviceCard(View, module="device/card")``). Callbacks from the browser may come on any thread:
    they hold ``self._lock`` and run inside ``self._show_errors(...)``, which shows an error in the widget
    instead of raising it.
    """

    _esm = read_module("parts/view")
    _css = read_style("parts/view")

    title = traitlets.Unicode("").tag(sync=True)
    caption = traitlets.Unicode("").tag(sync=True)
    source = traitlets.Unicode("").tag(sync=True)
    error = traitlets.Unicode("").tag(sync=True)
    view_name = traitlets.Unicode("").tag(sync=True)
    controls: Any = traitlets.List().tag(sync=True)
    """Boxes above the picture that stay when it changes, such as a slider."""
    scene = traitlets.Dict().tag(sync=True)
    data = traitlets.Bytes(b"").tag(sync=True)

    on_close: Callable[[], object] | None = None
    """A function that is called when the view is closed."""

    def __init_subclass__(cls, module: str = "", **kwargs: Any) -> None:
        if module:
            cls._esm = read_module(module)
            cls._css = read_style(module)
        super().__init_subclass__(**kwargs)

    def __init__(self, **traits: Any) -> None:
        self._lock = threading.RLock()
        super().__init__(view_name=re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(self).__name__).lower(), **traits)
        close_widgets_of_earlier_runs(self)

    @property
    def record(self) -> Any:
        """The record that the view displays, or a tuple of records."""
        raise NotImplementedError

    def sentence(self) -> str:
        """Return one sentence about the contents of the picture and the origin of its numbers."""
        raise NotImplementedError

    def describe(self) -> str:
        """Return a description of the picture in words, for readers who cannot see it."""
        raise NotImplementedError

    def tables(self) -> tuple[Table, ...]:
        """Return the tables of the record, or an empty tuple if the view has only a picture."""
        return ()

    def draw(self) -> Box:
        """Return the picture as a display list of boxes (see `gpulab.views.parts`)."""
        raise NotImplementedError

    def redraw(self, **traits: Any) -> None:
        """Draw the view again, and send the new picture and the values of ``traits`` to the browser."""
        scene, packed_data = pack(self.draw())
        with self.hold_sync():
            self.scene = scene
            self.data = packed_data
            for name, value in traits.items():
                setattr(self, name, value)

    def png(self) -> bytes:
        """Return the static picture as PNG. The picture has twice the nominal size, so that it stays
        sharp.
        """
        with self._lock:
            return picture.draw_png(self.draw(), self.title, self.caption)

    def html(self) -> str:
        """Return an HTML page with the interactive view. The page works offline and without a kernel."""
        with self._lock:
            traits_by_name = {
                name: trait for name, trait in self.traits(sync=True).items() if not name.startswith("_")
            }
            widget_traits = {"layout", "tabbable", "tooltip", "comm"}
            trait_values = {name: getattr(self, name) for name in traits_by_name if name not in widget_traits}
            return page.make_page(
                trait_values, str(self._esm), str(self._css), self.title, self.describe(), self.png()
            )

    def _make_writers(self) -> Writers:
        write_page = make_text_writer(self.html)
        return {".html": write_page, ".htm": write_page, ".png": lambda path: path.write_bytes(self.png())}

    def __repr__(self) -> str:
        return self.sentence()

    def _repr_mimebundle_(self, **kwargs: Any) -> Bundle:
        """Return the widget and its sentence, and show the picture as a separate output after the cell.

        That output is hidden next to a live widget (``parts.css``). It replaces a widget that cannot be
        shown: in an export, on a web page, or in a notebook without its kernel. If no cell runs, the picture
        is part of this bundle.
        """
        if self.comm is None:
            return self._picture_bundle()
        widget_data = {WIDGET_MIME: {"version_major": 2, "version_minor": 0, "model_id": self.model_id}}
        if call_after_cell(self._show_picture):
            return {"text/plain": repr(self), **widget_data}, {}
        data, metadata = self._picture_bundle()
        return {**data, **widget_data}, metadata

    def _picture_bundle(self) -> Bundle:
        """Return the sentence and the picture as data and metadata of an output."""
        try:
            png_data = self.png()
        except Exception as error:  # the widget must be shown even if the picture fails
            return {"text/plain": f"{self!r}\n(no picture: {type(error).__name__}: {error})"}, {}
        return make_picture_bundle(png_data, repr(self))

    def _show_picture(self) -> None:
        """Publish the picture as a separate output of the current cell."""
        from IPython.core.getipython import get_ipython

        shell: Any = get_ipython()
        data, metadata = self._picture_bundle()
        shell.display_pub.publish(data=data, metadata=metadata)

    def close(self) -> None:
        """Close the widget. The closed object can still be displayed as a static picture and a text."""
        super().close()
        self.layout.close()
        # ipywidgets blanks this hook on close; the class's own still gives picture and text.
        self.__dict__.pop("_repr_mimebundle_", None)
        if self.on_close is not None:
            self.on_close()

    @contextmanager
    def _show_errors(self, action: str) -> Iterator[None]:
        """Return a context that shows an error of its block in the widget, or removes the last error."""
        try:
            yield
        except Exception as error:
            self.error = f"{action} failed. {type(error).__name__}: {error}"
        else:
            self.error = ""


def make_picture_bundle(image: bytes, text: str) -> Bundle:
    """Return the data and the metadata of a notebook output with a PNG image and its text."""
    width_px, height_px = picture.read_nominal_size(image)
    mime_data = {"text/plain": text, "image/png": base64.b64encode(image).decode("ascii")}
    return mime_data, {
        "image/png": {"width": width_px, "height": height_px, "alt": text},
        **palette.LIGHT_METADATA,
    }


def close_widgets_of_earlier_runs(widget: anywidget.AnyWidget) -> None:
    """Close the widgets of earlier runs of the same notebook cell, which are no longer visible.

    The IPython shell holds the list of open widgets. Cells are identified by the id that the front end sends
    with each request; without an id, nothing is closed.
    """
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    cell_request: dict[str, Any] = getattr(shell, "get_parent", dict)() or {}
    cell_id = cell_request.get("metadata", {}).get("cellId")
    message_id = cell_request.get("header", {}).get("msg_id")
    if not cell_id or not message_id:
        return
    open_widgets: list[tuple[str, str, anywidget.AnyWidget]] = []
    for other_cell, other_run, other_widget in getattr(shell, "_gpulab_views", ()):
        if other_cell == cell_id and other_run != message_id:
            other_widget.close()
            other_widget.layout.close()
        elif other_widget.comm is not None:
            open_widgets.append((other_cell, other_run, other_widget))
    shell._gpulab_views = [*open_widgets, (cell_id, message_id, widget)]


def call_after_cell(function: Callable[[], object]) -> bool:
    """Call a function after the current notebook cell has shown its result. Return False if no cell is
    running.
    """
    from IPython.core.displaypub import CapturingDisplayPublisher
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    cell_request: dict[str, Any] = getattr(shell, "get_parent", dict)() or {}
    header = cell_request.get("header", {})
    if (
        header.get("msg_type") != "execute_request"
        or threading.current_thread() is not threading.main_thread()
        or isinstance(shell.display_pub, CapturingDisplayPublisher)
    ):
        return False

    def run_work(*_: Any) -> None:
        shell.events.unregister("post_run_cell", run_work)
        if shell.get_parent().get("header", {}).get("msg_id") == header.get("msg_id"):
            function()

    shell.events.register("post_run_cell", run_work)
    return True
