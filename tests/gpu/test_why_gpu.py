"""``gl.roofline`` and ``gl.diagnose`` on a real GPU: measured times, and what remedies gain there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from gpulab_course.content.n17_interview.cards.hidden.flawed import draw_flawed_kernel
from tests.causes.table import CAUSES

pytestmark = [pytest.mark.gpu]
# Those of which a replay on the virtual GPU takes a moment, and whose mended kernel does the same work.
TRIED = [cause for cause in CAUSES if cause not in ("launch", "tail", "compute")]


@pytest.fixture(autouse=True)
def on_the_gpu() -> Iterator[None]:
    gl.use_device("cuda")
    yield
    gl.use_device("auto")


def fastest_ns(launch: tuple[Any, ...]) -> float:
    """The shortest of many runs by events, L2 filled with something else before each."""
    cp = session.cp()
    kernel, grid, block, args, shared_bytes = launch
    grid, block = ((each,) if isinstance(each, int) else each for each in (grid, block))
    other = cp.empty(96 << 20, cp.uint8)
    times = []
    for _ in range(10):
        other.fill(1)
        begin = cp.cuda.Event()
        end = cp.cuda.Event()
        begin.record()
        kernel(grid, block, args, shared_mem=shared_bytes)
        end.record()
        end.synchronize()
        times.append(1e6 * cp.cuda.get_elapsed_time(begin, end))
    return float(min(times))


def test_a_roofline_has_measured_and_modelled_times() -> None:
    cases = [draw_flawed_kernel(5, "uncoalesced", 2), draw_flawed_kernel(5, "re-reading", 0)]
    launches = [case.launch(session.cp(), name) for case in cases for name in ("flawed", "mended")]
    chart = gl.roofline(*launches, path=True)
    points = chart.record.points
    assert {each.provenance.source for each in points} == {"measured"}
    assert all(each.time_ns > 0 for each in points)
    product = [each for each in points if each.operations]
    assert all(each.gflops <= 1.05 * chart.record.peak(each) for each in product)
    # Ten times is generous: the model is a model.
    assert all(0.1 < each.modelled_ns / each.time_ns < 10 for each in points if each.modelled_ns)
    print(chart.describe())


@pytest.mark.parametrize("cause", TRIED)
def test_a_suggested_fix_does_not_slow_the_kernel_much(cause: str) -> None:
    case = draw_flawed_kernel(5, cause, TRIED.index(cause))
    cp = session.cp()
    kernel, grid, block, args, shared_bytes = flawed = case.launch(cp, "flawed")
    found = gl.diagnose(kernel, grid, block, args, shared_mem=shared_bytes)
    assert found.measured_ns > 0
    assert "measured" in found.caption
    assert found.note
    gained = fastest_ns(flawed) / fastest_ns(case.launch(cp, "mended"))
    main = found.main
    print(
        f"{cause:15}{case.family:24}main {main.kind if main else 'none':15}"
        f"stated {main.gain if main else 1:7.2f}, measured {gained:7.2f}"
    )
    # Of cold caches and small kernels a GPU's own start is in every time; the table tells how near it is.
    assert main is None or gained > 0.6


def test_arrays_have_the_contents_after_one_launch_each() -> None:
    cp = session.cp()
    code = 'extern "C" __global__ void add(float* x) { x[blockIdx.x * blockDim.x + threadIdx.x] += 1; }'
    kernel = cp.RawKernel(code, "add")
    x = cp.zeros(1 << 12, np.float32)
    gl.diagnose(kernel, 16, 256, (x,))
    gl.roofline((kernel, 16, 256, (x,)))
    assert bool((x == 2).all())
