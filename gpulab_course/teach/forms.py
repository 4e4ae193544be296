"""The widget that displays the course's forms in JupyterLab; ``forms.js`` is its code in the browser."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import anywidget
import traitlets

from gpulab.views._base import close_widgets_of_earlier_runs, read_module
from gpulab.views.parts import palette

_TEACH_FILES = files("gpulab_course.teach")


class Form(anywidget.AnyWidget):
    """A form in JupyterLab that receives the learner's input as messages.

    Parameters
    ----------
    form_name
        The name of the form in ``forms.js``.
    facts
        Data that do not change.
    read_state
        Function that returns the current state; `refresh` calls it again.
    react_to_message
        Function that receives each message.
    """

    _esm = read_module("forms", _TEACH_FILES)
    _css = palette.make_css(".gpulab-form") + (_TEACH_FILES / "forms.css").read_text(encoding="utf-8")

    form = traitlets.Unicode().tag(sync=True)
    facts = traitlets.Dict().tag(sync=True)
    state = traitlets.Dict().tag(sync=True)
    heard = traitlets.Int(0).tag(sync=True)
    """Number of messages that have arrived: the browser sees that a kernel responds."""
    notice = traitlets.Unicode().tag(sync=True)
    """The warnings that were printed during the last message."""

    def __init__(
        self,
        form_name: str,
        facts: dict[str, Any],
        read_state: Callable[[], dict[str, Any]],
        react_to_message: Callable[[dict[str, Any]], None],
    ) -> None:
        super().__init__(form=form_name, facts=facts, state=read_state())
        close_widgets_of_earlier_runs(self)
        self._read_state = read_state
        self._react_to_message = react_to_message
        self.on_msg(self._handle_message)

    def refresh(self) -> None:
        """Show the current state of the form."""
        self.state = self._read_state()

    def _handle_message(self, _widget: object, message: dict[str, Any], _buffers: object) -> None:
        self.heard += 1
        if self.state.get("wrong"):  # an error belongs to the message before
            self.state = {**self.state, "wrong": ""}
        # No cell is running, so a warning, such as about answers that cannot be saved, has no output area.
        with contextlib.redirect_stderr(io.StringIO()) as warning_output:
            self._react_to_message(message)
        self.notice = warning_output.getvalue().strip()
