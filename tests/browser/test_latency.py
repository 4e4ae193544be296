"""How long views take in a real JupyterLab, and what running a cell again leaves behind.

The times are reported with the run and fail nothing, for the machine may be busy. What Python does for a
view is held by `gpulab bench --check`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FIRST_PAINT_MS = 150
VIEWS = {"device": "device-card", "launch": "launch-chart", "warps": "warp-stepper"}
CELLS = [
    '''
import numpy as np
import gpulab as gl
from gpulab import cp
gl.use_device("virtual:A100")
source = r"""
extern "C" __global__ void scale(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float v = x[i];
    y[i] = 2 * v;
  }
}
"""
kernel = cp.RawKernel(source, "scale")
n = 1 << 20
x, y = cp.ones(n, dtype=cp.float32), cp.zeros(n, dtype=cp.float32)
''',
    "gl.device()",
    "gl.launch(kernel, n // 256, 256, (x, y, np.int32(n)))",
    "gl.warps(kernel, n // 256, 256, (x, y, np.int32(n)))",
    "print('all run')",
]
# From the command to run a cell until the frame in which its new view stands on the page with all it shows.
RUN = """([at, kind]) => new Promise((done, fail) => {
    setTimeout(() => fail(new Error(`no ${kind} after 20 s`)), 20_000);
    const notebook = window.jupyterapp.shell.currentWidget.content;
    const cell = notebook.node.querySelectorAll('.jp-Cell')[at];
    const old = cell.querySelector('.gpulab-view');
    notebook.activeCellIndex = at;
    const begun = performance.now();
    const look = () => {
        const view = cell.querySelector('.gpulab-' + kind);
        if (view && view !== old && view.querySelector('.gl-body').getBoundingClientRect().height > 20) {
            requestAnimationFrame(() => setTimeout(() => done(performance.now() - begun)));
        } else requestAnimationFrame(look);
    };
    window.jupyterapp.commands.execute('notebook:run-cell');
    look();
})"""


@pytest.fixture(scope="module")
def page(lab: Any) -> Iterator[tuple[Any, Any]]:
    with lab.notebook("latency.ipynb", CELLS) as kernel:
        lab.page.wait_for_selector('.jp-OutputArea-output:has-text("all run")', timeout=100_000)
        yield lab, kernel


@pytest.mark.parametrize("name", VIEWS)
def test_first_paint(
    page: tuple[Any, Any], name: str, record_property: Callable[[str, object], None]
) -> None:
    lab, _ = page
    times = []
    for _ in range(3):
        times.append(lab.page.evaluate(RUN, [1 + list(VIEWS).index(name), VIEWS[name]]))
        lab.page.wait_for_timeout(700)
    median = statistics.median(times)
    record_property("figure", f"first paint of gl.{name}: median {median:.0f} ms, goal {FIRST_PAINT_MS} ms")
    assert lab.page.locator(f".gpulab-{VIEWS[name]}").count() == 1, "the new view took the old one's place"


def test_running_all_again_leaves_nothing_behind(
    page: tuple[Any, Any], record_property: Callable[[str, object], None]
) -> None:
    """Neither elements nor listeners on the page nor models in the kernel."""
    lab, kernel = page
    devtools = lab.page.context.new_cdp_session(lab.page)
    devtools.send("Performance.enable")
    kernel.value("globals().update(w=__import__('ipywidgets.widgets.widget').widgets.widget)")

    def counts() -> list[int]:
        lab.command("notebook:run-all-cells")
        lab.page.wait_for_timeout(500)
        lab.wait_for(
            lambda: (
                kernel.value("w is not None")
                and lab.page.locator(".gpulab-view").count() == len(VIEWS)
                and lab.page.locator(".jp-InputPrompt:has-text('*')").count() == 0
            ),
            what="all views",
        )
        lab.page.wait_for_timeout(1_000)
        devtools.send("HeapProfiler.collectGarbage")
        metrics = {m["name"]: int(m["value"]) for m in devtools.send("Performance.getMetrics")["metrics"]}
        return [metrics["Nodes"], metrics["JSEventListeners"], kernel.value("len(w._instances)")]

    counts()
    before, *_, after = [counts() for _ in range(4)]
    grown = [b - a for a, b in zip(before, after, strict=True)]
    record_property(
        "figure", "three times Run All: {:+} elements, {:+} listeners, {:+} models".format(*grown)
    )
    assert grown[2] == 0
    assert grown[0] < 150
    assert grown[1] < 60
