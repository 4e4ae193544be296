"""Completion after ``gl.`` in a notebook: functions with their signatures."""

from __future__ import annotations

import json
import time

import pytest
from nbclient import NotebookClient

import gpulab as gl
from tests.session.notebooks import printed, run

LOADED = "import json\nprint(json.dumps([name for name in vars(gl) if callable(vars(gl)[name])]))"
COMPLETE = """
from IPython.core.completer import provisionalcompleter
get_ipython().Completer.jedi_compute_type_timeout = 60_000
with provisionalcompleter():
    items = list(get_ipython().Completer.completions("gl.", 3))
print(json.dumps({item.text: [item.type, item.signature] for item in items}))
"""


def test_functions_are_preloaded_and_completed_with_signatures(
    jupyter: NotebookClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jupyter.kc, "allow_stdin", True)  # type: ignore[union-attr]
    run(jupyter, "import gpulab as gl")
    functions = set(gl.__all__) - {"cp", "cupyx", "errors"}
    end_s = time.monotonic() + 60
    while (missing := functions - {*json.loads(printed(jupyter, LOADED))}) and time.monotonic() < end_s:
        time.sleep(1)
    assert not missing, "no cell has used them, so only another thread can have loaded them"
    items = json.loads(printed(jupyter, COMPLETE))
    assert {items[name][0] for name in functions} == {"function"}
    assert "block" in items["launch"][1]
