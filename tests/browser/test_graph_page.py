"""The replay of a graph on a saved page: it runs at the times of the record."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from gpulab.views import GraphView
from gpulab.words import duration
from tests.browser.test_timeline import outlined
from tests.views.graphs import chain, compared

pytestmark = [pytest.mark.browser]

DONE = re.compile(
    r"([\d.,]+) (ns|µs|ms), done: piece by piece (\d+) of (\d+), as a graph (\d+) of (\d+); times (.*)"
)
SCALE = {"ns": 1, "µs": 1e3, "ms": 1e6}
IMAGE = "node => node.toDataURL()"


def progress(page: Any) -> tuple[float, int, int]:
    """The time of the replay in ns, and the numbers of operations that are done in both ways."""
    value, unit, eager, _, replayed, _, _ = DONE.fullmatch(page.locator(".gl-progress").inner_text()).groups()
    return float(value.replace(",", "")) * SCALE[unit], int(eager), int(replayed)


def test_single_steps_show_the_nodes_completed_at_each_time(open_saved: Callable[..., Any]) -> None:
    record = chain(5)
    comparison = compared(record)
    view = GraphView(record, comparison)
    page = open_saved(view)
    view.close()
    nodes = page.locator(".gl-dag canvas").first
    assert page.locator(".gl-progress").inner_text().endswith(comparison.replay.provenance.label)
    whole = nodes.evaluate(IMAGE)
    images = {whole}
    ends = [[a.end_ns - t.start_ns for a in t.activities] for t in (comparison.eager, comparison.replay)]
    starts = [a.start_ns - comparison.replay.start_ns for a in comparison.replay.activities]
    for stop_ns in sorted({*starts, *ends[1]} - {0}):
        page.get_by_role("button", name="Step on").click()
        time_ns, *done = progress(page)
        assert duration(time_ns) == duration(stop_ns)
        assert done == [sum(end_ns <= stop_ns for end_ns in way) for way in ends]
        images.add(nodes.evaluate(IMAGE))
    assert len(images) > len(starts), "each node changes the picture"
    assert nodes.evaluate(IMAGE) == whole, "all nodes are done"
    coloured = outlined(page, "accent")
    page.get_by_role("button", name="To the start").click()
    assert 0 < outlined(page, "accent") < 0.4 * coloured, "one of five nodes has started"
    page.locator(".gl-tracks canvas").focus()
    page.keyboard.press(" ")
    assert page.get_by_role("button", name="Play or pause").inner_text() == "Pause"
    page.keyboard.press(" ")
    for _ in range(2 * len(starts) - 1):
        page.get_by_role("button", name="Step on").click()
    page.get_by_role("button", name="Step back").click()
    assert progress(page)[2] == len(starts) - 1


def test_play_runs_at_the_selected_speed(open_saved: Callable[..., Any]) -> None:
    record = chain(5)
    view = GraphView(record, compared(record))
    page = open_saved(view)
    view.close()
    speed = page.get_by_label("Speed")
    rate_ns = float(speed.evaluate("node => node.value"))
    assert speed.evaluate("node => node.selectedOptions[0].text").startswith(duration(rate_ns))
    play = page.get_by_role("button", name="Play or pause")
    start_s = time.monotonic()
    play.click()
    page.wait_for_timeout(1000)
    play.click()
    passed_s = time.monotonic() - start_s
    time_ns = progress(page)[0]
    assert 0.4 * rate_ns < time_ns < rate_ns * passed_s
    page.wait_for_timeout(200)
    assert progress(page)[0] == time_ns, "it has paused"
