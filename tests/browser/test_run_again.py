"""What running a cell again leaves behind in a real JupyterLab."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

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


@pytest.fixture(scope="module")
def page(lab: Any) -> Iterator[tuple[Any, Any]]:
    with lab.notebook("again.ipynb", CELLS) as kernel:
        lab.page.wait_for_selector('.jp-OutputArea-output:has-text("all run")', timeout=100_000)
        yield lab, kernel


def test_rerunning_all_cells_leaks_no_elements_or_models(
    page: tuple[Any, Any], record_property: Callable[[str, object], None]
) -> None:
    """No elements or listeners may remain on the page, and no models in the kernel."""
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
                and lab.page.locator(".gpulab-view").count() == 3
                and lab.page.locator(".jp-InputPrompt:has-text('*')").count() == 0
            ),
            what="all views",
        )
        page_counts = []
        for _ in range(3):  # on a busy computer, JupyterLab releases old outputs late
            lab.page.wait_for_timeout(1_000)
            devtools.send("HeapProfiler.collectGarbage")
            metrics = {m["name"]: int(m["value"]) for m in devtools.send("Performance.getMetrics")["metrics"]}
            page_counts.append((metrics["Nodes"], metrics["JSEventListeners"]))
        return [*map(min, zip(*page_counts, strict=True)), kernel.value("len(w._instances)")]

    counts()
    before, *_, after = [counts() for _ in range(4)]
    grown = [b - a for a, b in zip(before, after, strict=True)]
    record_property(
        "figure", "three times Run All: {:+} elements, {:+} listeners, {:+} models".format(*grown)
    )
    assert grown[2] == 0
    assert grown[0] < 150
    assert grown[1] < 60
