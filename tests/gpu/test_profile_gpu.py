"""``gl.profile`` of a GPU: measured by CUPTI, and refused with a name where that is not to be had."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpulab as gl
from virtualgpu.errors import GpulabError

pytestmark = pytest.mark.gpu

N = 1 << 20
SOURCE = r"""
extern "C" __global__ void axpy(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += 2.0f * x[i];
}
"""


def program_of(cp: Any) -> Any:
    axpy = cp.RawKernel(SOURCE, "axpy")
    x = cp.ones(N, cp.float32)
    y = cp.zeros(N, cp.float32)

    def program() -> None:
        for _ in range(5):
            axpy((N // 256,), (256,), (x, y, np.int32(N)))
        y.get()

    return program


def test_profile_times_equal_the_measured_timeline(cp: Any) -> None:
    p = gl.profile(program_of(cp), warmup=1)
    record = p.record
    axpy = record.kernel("axpy")
    assert record.provenance.source == "measured"
    assert axpy.count == 5
    durations = [a.duration_ns for a in p.timeline.record.activities if a.name == "axpy"]
    assert axpy.device_time_total_ns == sum(durations) > 0
    assert axpy.occupancy == 1.0
    assert sum(copy.size_bytes for copy in record.copies if copy.way == "DtoH") == 4 * N
    assert any("axpy((N // 256,)" in line.source.text and line.count == 5 for line in record.lines)
    assert "measured on" in repr(p)
    assert "counters" in p.describe()  # what it does not know is said


def test_another_profiler_is_reported_before_the_program_runs(
    cp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpulab.lab.profiling.profile import ProfilerInUseError
    from gpulab.real.cupti import library

    calls: list[int] = []
    monkeypatch.setattr(library, "find_other_cupti_tool", lambda: "Nsight Systems")
    with pytest.raises(ProfilerInUseError, match="in use by Nsight Systems"):
        gl.profile(lambda: calls.append(1))
    monkeypatch.setattr(library, "find_other_cupti_tool", lambda: "")
    monkeypatch.setattr(library, "load_cupti", lambda: None)
    with pytest.raises(GpulabError, match="CUPTI is not installed"):
        gl.profile(lambda: calls.append(1))
    assert calls == []
    monkeypatch.undo()
    assert gl.profile(program_of(cp)).record.kernel("axpy").count == 5
