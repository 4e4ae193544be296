"""What a notebook types, in a real JupyterLab on the virtual GPU: `gl.warps`, `gl.launch`, their views."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CELLS = [
    '''
import gpulab as gl
from gpulab import cp

collatz = cp.RawKernel(r"""
extern "C" __global__
void collatz(const int* start, int* steps, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        int v = start[i], count = 0;
        while (v != 1) {
            if (v % 2 == 0)
                v /= 2;
            else
                v = 3 * v + 1;
            ++count;
        }
        steps[i] = count;
    }
}
""", "collatz")
n = 400_000
start = cp.arange(n, dtype=cp.int32) % 1000 + 1
steps = cp.zeros_like(start)
''',
    "warps = gl.warps(collatz, -(-n // 256), 256, (start, steps, cp.int32(n)))\nwarps",
    "launch = gl.launch(collatz, -(-n // 256), 256, (start, steps, cp.int32(n)))\nlaunch",
    "card = gl.device()\ncard",
    "occupancy = gl.occupancy(collatz, 256)\noccupancy",
]
WARPS, LAUNCH, CARD = (f".jp-Cell:nth-child({n}) .gpulab-view" for n in range(2, 5))
OCCUPANCY = ".jp-Cell:nth-child(5) img[class^=gl-figure]"


def collatz_steps(value: int) -> int:
    return next(count for count, v in enumerate(iterate(value)) if v == 1)


def iterate(value: int) -> Any:
    return itertools.accumulate(
        itertools.repeat(None), lambda v, _: 3 * v + 1 if v % 2 else v // 2, initial=value
    )


def test_real_kernels_in_the_views(lab: Any, record_property: Callable[[str, object], None]) -> None:
    page = lab.page
    with lab.notebook("course.ipynb", CELLS) as kernel:
        page.locator(OCCUPANCY).wait_for(timeout=120_000)
        page.wait_for_selector(f"{WARPS} .gl-sentence:has-text('Step 1')")
        page.locator(f"{WARPS} select[aria-label='One step is']").select_option("step")
        page.wait_for_selector(f"{WARPS} .gl-sentence:has-text('Step 1')")

        # The store of line 16 runs once, in all lanes, with each lane's own count.
        page.locator(f"{WARPS} .gl-listing").focus()
        page.keyboard.press("End")
        page.keyboard.press("PageUp")
        sentence = page.locator(f"{WARPS} .gl-sentence")
        page.wait_for_function(
            "s => document.querySelector(s).textContent.includes('It stores 4 bytes')",
            arg=f"{WARPS} .gl-sentence",
        )
        assert "32 of 32 lanes active" in sentence.text_content()
        assert "4 bytes per lane to global memory: 4 sectors" in sentence.text_content()
        lab.picture("course_warps_store", WARPS)

        # The lane that iterates longest is alone in the end, and it is the one arithmetic says.
        counts = [collatz_steps(value) for value in range(1, 33)]
        longest = counts.index(max(counts))
        page.keyboard.press("End")
        alone = kernel.value("[int(m) for m in warps.trace.active_mask if int(m).bit_count() == 1][-1]")
        assert alone == 1 << longest
        assert kernel.value("[int(v) for v in steps[:32].get()]") == counts
        step = kernel.value(f"max(i for i, m in enumerate(warps.trace.active_mask) if int(m) == {alone})")
        last = kernel.value("len(warps.trace)") - 1
        lab.expect(kernel, "warps.step", last)
        for _ in range(last - step):
            page.keyboard.press("ArrowLeft")
        lab.expect(kernel, "warps.step", step)
        runs = kernel.value(f"int(warps.trace.executed_mask[{step}])") == alone
        states = page.evaluate(
            "s => [...document.querySelectorAll(`${s} .gl-lane`)].map(lane => lane.dataset.state)", WARPS
        )
        assert states == [
            ("active" if runs else "off") if lane == longest else "inactive" for lane in range(32)
        ]
        lab.picture("course_warps_alone", WARPS)

        # The slider runs the kernel again with other blocks; the arrays end as they were.
        lab.picture("course_launch_256", LAUNCH)
        median = lab.slide(kernel, LAUNCH, "launch", start=256)
        assert kernel.value("launch.error") == ""
        lab.expect(kernel, "launch.trace.grid[0]", -(-400_000 // 512))
        assert kernel.value("[int(v) for v in steps[:32].get()]") == counts
        lab.picture("course_launch_512", LAUNCH)
        record_property(
            "figure", f"slider to new picture (kernel run again): median {median:.0f} ms, goal 60 ms"
        )
        assert median > 0
        lab.picture("course_card", CARD)
        lab.picture("course_occupancy", OCCUPANCY)
