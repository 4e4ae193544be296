"""The widget behind the course's forms; ``forms.js`` draws them."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import anywidget
import traitlets

from gpulab.views._base import close_widgets_of_earlier_runs, module_text
from gpulab.views.parts import palette

_HERE = files("gpulab_course.teach")


class Form(anywidget.AnyWidget):
    """A form in JupyterLab: `facts` stay, `state` changes, and the learner's input arrives as a message.

    Parameters
    ----------
    form
        Its name in ``forms.js``.
    facts
        What it shows from the beginning.
    state
        Gives what it shows now; `refresh` asks again.
    react
        Takes what the learner does.
    """

    _esm = module_text("forms", _HERE)
    _css = palette.css(".gpulab-form") + (_HERE / "forms.css").read_text(encoding="utf-8")

    form = traitlets.Unicode().tag(sync=True)
    facts = traitlets.Dict().tag(sync=True)
    state = traitlets.Dict().tag(sync=True)
    heard = traitlets.Int(0).tag(sync=True)
    """How many messages have arrived: the browser sees that somebody answers."""
    notice = traitlets.Unicode().tag(sync=True)
    """What was printed as a warning while the last message was answered."""

    def __init__(
        self,
        form: str,
        facts: dict[str, Any],
        state: Callable[[], dict[str, Any]],
        react: Callable[[dict[str, Any]], None],
    ) -> None:
        super().__init__(form=form, facts=facts, state=state())
        close_widgets_of_earlier_runs(self)
        self._now = state
        self._react = react
        self.on_msg(self._hear)

    def refresh(self) -> None:
        """Show what is so now."""
        self.state = self._now()

    def _hear(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        self.heard += 1
        # No cell is running whose output a warning could join: answers that cannot be saved, say.
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self._react(content)
        self.notice = said.getvalue().strip()
