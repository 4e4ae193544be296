"""Sliders that Python answers: while it works, when it has gone, and never with a picture not shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CELL = """
from pathlib import Path
import time
from tests.views import synthetic
from gpulab.views import LaunchChart

def slow(threads):
    while not Path("done").exists(): time.sleep(0.02)
    return synthetic.launch_trace(threads)

LaunchChart(synthetic.launch_trace(256), launch_at_block_size=slow)
"""
VIEW = ".jp-Cell .gpulab-view"
SESSION = "window.jupyterapp.shell.currentWidget.sessionContext.session"


def note(lab: Any) -> str:
    return str(lab.page.locator(f"{VIEW} .gl-redraw").inner_text())


def texts_shown(lab: Any) -> tuple[str, str]:
    """The slider's text, and the picture's heading."""
    page = lab.page
    texts = [page.locator(f"{VIEW} {part}").first.inner_text() for part in (".gl-slider-value", ".gl-waves")]
    return texts[0].partition(" ")[0], texts[1].partition(" ")[0]


def opacity(lab: Any) -> float:
    return float(lab.page.locator(f"{VIEW} .gl-scene").evaluate("node => getComputedStyle(node).opacity"))


def move(lab: Any, steps: int = 1) -> None:
    lab.page.locator(f"{VIEW} input[type=range]").focus()
    for _ in range(steps):
        lab.page.keyboard.press("ArrowRight")


def restart(lab: Any) -> None:
    """As the menu does; it returns before the kernel is there again."""
    lab.page.evaluate(f"() => {{ window.restarted = {SESSION}.kernel.restart(); }}")


def test_a_waiting_slider_still_labels_the_picture_that_is_shown(lab: Any) -> None:
    done = Path(lab.folder / "done")
    done.unlink(missing_ok=True)
    with lab.notebook("sliders.ipynb", [CELL]):
        lab.page.locator(f"{VIEW} canvas").wait_for(timeout=60_000)
        move(lab, 3)
        assert note(lab) == "waiting for Python"
        lab.wait_for(lambda: opacity(lab) < 0.6, what="a dimmed picture", seconds=5)
        assert texts_shown(lab) == ("352", "256")
        done.touch()
        lab.wait_for(lambda: texts_shown(lab) == ("352", "352"), what="the last place asked for")
        lab.wait_for(lambda: note(lab).startswith("new picture in "), what="its time")
        lab.wait_for(lambda: opacity(lab) == 1, what="a bright picture", seconds=5)

        done.unlink()
        move(lab)
        assert note(lab) == "waiting for Python"
        restart(lab)
        lab.wait_for(lambda: note(lab).startswith("Run this cell again"), what="the word", seconds=20)
        assert "Still showing 352 threads" in note(lab)
        assert texts_shown(lab) == ("352", "352")
        lab.wait_for(lambda: opacity(lab) == 1, what="a bright picture", seconds=5)
        move(lab, 2)
        assert note(lab).startswith("Run this cell again")
        assert texts_shown(lab) == ("352", "352")
        lab.page.evaluate("() => window.restarted")
    assert not lab.problems
