"""The widget behind the course's forms; ``static/forms.js`` draws them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import anywidget
import traitlets

_STATIC = files("gpulab.teach") / "static"


class Form(anywidget.AnyWidget):
    """One form: `facts` stay, `state` changes, and what the learner does comes as a message."""

    _esm = (_STATIC / "forms.js").read_text(encoding="utf-8")
    _css = (_STATIC / "forms.css").read_text(encoding="utf-8")

    form = traitlets.Unicode().tag(sync=True)
    facts = traitlets.Dict().tag(sync=True)
    state = traitlets.Dict().tag(sync=True)

    def __init__(
        self, form: str, facts: dict[str, Any], state: dict[str, Any], heard: Callable[[dict[str, Any]], None]
    ) -> None:
        super().__init__(form=form, facts=facts, state=state)
        self.heard = heard
        self.on_msg(lambda _widget, content, _buffers: self.heard(content))
