"""A whole block's trace in a real JupyterLab: registers, shared memory, folded loops, other warps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

BLOCK, ALONE = (f".jp-Cell:nth-child({n}) .gpulab-view" for n in (2, 3))

CELLS = [
    '''
import numpy as np
import gpulab as gl
from gpulab import cp
from tests.trace_state import registers_at, shared_at
gl.use_device("virtual:A100")
code = r"""
extern "C" __global__ void scan(float* x, int n)
{
    extern __shared__ float two[];
    int t = threadIdx.x, from = 0;
    two[t] = x[t];
    __syncthreads();
    for (int gap = 1; gap < n; gap *= 2) {
        float sum = two[from * n + t];
        if (t >= gap) sum += two[from * n + t - gap];
        two[(1 - from) * n + t] = sum;
        from = 1 - from;
        __syncthreads();
    }
    x[t] = two[from * n + t];
}
extern "C" __global__ void nested(int* x)
{
    int sum = 0;
    #pragma unroll 1
    for (int i = 0; i < 17; ++i) {
        #pragma unroll 1
        for (int j = 0; j <= (threadIdx.x & 3); ++j) sum += x[i] * j;
    }
    x[threadIdx.x] = sum;
}
"""
scan = cp.RawKernel(code, "scan")
nested = cp.RawKernel(code, "nested")
''',
    """
n = 128
x = cp.asarray(np.arange(n, dtype=np.float32) / 8)
whole = gl.warps(scan, 1, n, (x, np.int32(n)), shared_mem=8 * n, whole_block=True)
whole.by_line = whole.fold = False
whole
""",
    """
alone = gl.warps(nested, 1, 32, (cp.arange(32, dtype=np.int32),))
alone.by_line = alone.fold = False
alone
""",
]

REGISTERS = """selector => Object.fromEntries([...document.querySelectorAll(selector + ' .gl-register')]
    .map(row => [...row.querySelectorAll('span')].slice(0, 3).map(s => s.textContent))
    .map(([name, type, value]) => [name, [type, value]]))"""


@pytest.fixture(scope="module")
def traces(lab: Any) -> Iterator[tuple[Any, Any]]:
    with lab.notebook("traces.ipynb", CELLS) as kernel:
        lab.page.wait_for_selector(f"{ALONE} .gl-sentence:has-text('Step 1')", timeout=60_000)
        lab.page.wait_for_selector(f"{BLOCK} .gl-sentence:has-text('Step 1')", timeout=60_000)
        yield lab, kernel


def press(lab: Any, key: str, view: str = BLOCK) -> None:
    lab.page.locator(f"{view} .gl-listing").press(key)


def go_to(lab: Any, step: int, view: str = BLOCK) -> None:
    lab.page.locator(f"{view} input[type=range]").fill(str(step))
    lab.page.wait_for_function(
        "([s, start]) => document.querySelector(s).textContent.startsWith(start)",
        arg=[f"{view} .gl-sentence", f"Step {step + 1} of"],
    )


def test_switching_the_warp_keeps_the_moment(traces: tuple[Any, Any]) -> None:
    lab, kernel = traces
    go_to(lab, kernel.value("len(whole.trace) // 2"))
    now = kernel.value("int(whole.trace.detail.sequence[len(whole.trace) // 2])")
    press(lab, "]")
    lab.expect(kernel, "whole.warp", 1)
    lab.wait_for(lambda: kernel.value("int(whole.trace.detail.sequence[whole.step])") <= now, what="its step")
    step = kernel.value("whole.step")
    assert kernel.value(f"int(whole.trace.detail.sequence[{step + 1}])") > now
    sentence = lab.page.locator(f"{BLOCK} .gl-sentence").text_content()
    assert sentence == kernel.value("whole.steps.sentence(whole.step)")
    lab.page.locator(f"{BLOCK} select[aria-label=Warp]").select_option("3")
    lab.expect(kernel, "whole.warp", 3)
    press(lab, "[")
    lab.expect(kernel, "whole.warp", 2)


def test_a_lane_and_a_register_can_be_chosen(traces: tuple[Any, Any]) -> None:
    lab, kernel = traces
    press(lab, "End")
    lab.page.locator(f"{BLOCK} .gl-lane").nth(5).click()
    lab.expect(kernel, "whole.lane", 5)
    press(lab, ".")
    lab.expect(kernel, "whole.lane", 6)
    assert "lane 6" in lab.page.locator(f"{BLOCK} .gl-register-panel .gl-heading").text_content()
    name = next(n for n, (kind, _) in lab.page.evaluate(REGISTERS, BLOCK).items() if kind == "f32")
    lab.page.locator(f"{BLOCK} .gl-register", has_text=name).first.click()
    lab.expect(kernel, "whole.register", name)
    bits = f"registers_at(whole.trace, whole.step)['{name}'].value"
    values = kernel.value(f"{bits}.astype('u4').view('f4').astype(float).tolist()")
    registers = lab.page.evaluate(
        "s => [...document.querySelectorAll(s + ' .gl-value')].map(v => v.title)", BLOCK
    )
    assert [float(text) for text in registers] == pytest.approx(values, rel=1e-6)
    lab.picture("trace_register", BLOCK)
    lab.page.locator(f"{BLOCK} .gl-small").click()
    lab.expect(kernel, "whole.register", "")


def test_loops_fold_and_can_be_stepped_by_iteration(traces: tuple[Any, Any]) -> None:
    lab, kernel = traces
    text = lab.page.locator(f"{ALONE} .gl-sentence")
    press(lab, "Home", ALONE)
    outer = kernel.value("int(alone.steps.loops.turn_begin[0])")
    assert kernel.value("len(alone.steps.loops.turns(0))") == 17
    assert kernel.value("len(alone.steps.loops.turns(1))") == 4
    go_to(lab, outer, ALONE)
    assert ", iteration 1 of 17" in text.text_content()
    slider = lab.page.locator(f"{ALONE} input[type=range]")
    assert slider.get_attribute("max") == kernel.value("str(len(alone.trace) - 1)")
    fold = lab.page.locator(f"{ALONE} button", has_text="Fold loops")
    fold.click()
    # One of the 17 iterations of the outer loop, and one of the inner loop's in it.
    assert int(slider.get_attribute("max")) < kernel.value("len(alone.trace)") / 10
    lab.picture("trace_loops_folded", ALONE)
    fold.click()
    lab.expect(kernel, "alone.fold", False)
    lab.page.locator(f"{ALONE} button[data-move=next-iteration]").click()
    inner = kernel.value("int(alone.steps.loops.turn_begin[1])")
    lab.expect(kernel, "alone.step", inner)
    assert ", iteration 2 of 17:" in text.text_content()
    press(lab, "i", ALONE)
    press(lab, "Shift+I", ALONE)
    lab.expect(kernel, "alone.step", inner)
    go_to(lab, kernel.value("int(alone.steps.loops.turn_begin[alone.steps.loops.turns(1)[2]])"), ALONE)
    assert ", iteration 1 of 17, inside it 3 of 4:" in text.text_content()
    lab.page.locator(f"{ALONE} button[data-move=past-loop]").click()
    loops = "alone.steps.loops"
    lab.expect(kernel, "alone.step", kernel.value(f"int({loops}.turn_end[{loops}.turns(1)[-1]]) + 1"))
    press(lab, "o", ALONE)
    lab.expect(kernel, "alone.step", kernel.value(f"int({loops}.turn_end[{loops}.turns(0)[-1]]) + 1"))
    assert "iteration" not in text.text_content()
