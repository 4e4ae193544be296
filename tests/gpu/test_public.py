"""Launches on a real GPU: questions start from the arrays as they were, and it runs in its stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.gpu

CODE = r"""
extern "C" __global__ void scale(float* x, float factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= factor;
}"""


@pytest.fixture
def call(cp: Any) -> tuple[Any, ...]:
    x = cp.arange(1000, dtype=cp.float32)
    return cp.RawKernel(CODE, "scale"), 4, 256, (x, np.float32(2), np.int32(1000))


def test_observations_of_a_run_start_from_the_initial_arrays(call: tuple[Any, ...]) -> None:
    import gpulab as gl

    run = gl.launch(*call)
    launched = call[3][0].get()
    with run.kept_launch.with_initial_contents() as launch:
        assert np.array_equal(launch.args[0].get(), np.arange(1000, dtype=np.float32))
    assert run.count().total("requests", "global", "store") == 32
    assert run.warps(block_index=3, warp=7).measured is not None
    assert run.sanitize().clean
    assert run.diagnose(baseline=run).measured_ns > 0
    assert len(gl.roofline(run, run).record.points) == 2
    assert np.array_equal(call[3][0].get(), launched)


def test_a_launch_runs_in_its_stream(cp: Any, call: tuple[Any, ...]) -> None:
    """The kernel and the copies made for it run after earlier work of the stream."""
    import gpulab as gl

    cp.cuda.Device().synchronize()
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        call[3][0][...] = 1
    with gl.timeline() as line:
        run = gl.launch(*call, stream=stream)
        gl.count(*call, stream=stream)
    assert set(call[3][0].get().tolist()) == {4.0}
    assert run.count().total("requests", "global", "store") == 32
    kernels = [each for each in line.record.activities if each.kind == "CONCURRENT_KERNEL"]
    ours = {each.stream_id for each in kernels if "scale" in each.name}
    assert len(ours) == 1
    with gl.timeline() as line:
        call[0]((4,), (256,), call[3], stream=stream)
        call[0]((4,), (256,), call[3])
    plain = [each.stream_id for each in line.record.activities if "scale" in each.name]
    assert ours == {plain[0]} != {plain[1]}
