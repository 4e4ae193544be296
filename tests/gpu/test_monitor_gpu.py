"""`gl.monitor` on a real GPU: what NVML calls busy, what GPM counts, and what watching costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpulab as gl

pytestmark = pytest.mark.gpu

SPIN = r"""
extern "C" __global__ void spin(long long for_ns) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < for_ns);
}
"""


def test_a_monitor_lists_available_and_missing_metrics() -> None:
    with gl.monitor(rate_hz=20) as seen:
        seen.mark("nothing")
        time.sleep(0.4)  # GPM tells the mean between two samples, 100 ms apart or more
    record = seen.record
    assert seen.state == "stopped"
    assert record.provenance.source == "measured"
    for name, column in record.columns.items():
        assert name in record.missing or not np.isnan(column).all(), name
    assert "GPU utilization" in seen.table().text()


@pytest.mark.hardware("busy SMs are counted")
def test_one_block_is_busy_and_uses_one_sm(record_property: Callable[[str, object], None]) -> None:
    cp: Any = gl.cp
    spin = cp.RawKernel(SPIN, "spin")
    spin((1,), (32,), (np.int64(1000),))
    with gl.monitor() as seen:
        seen.mark("one block")
        spin((1,), (32,), (np.int64(2_000_000_000),))
        cp.cuda.Device().synchronize()
        sampler = seen._recorder.sampler
    one = seen.record.within("one block")
    assert np.nanmax(one["utilization"]) > 90
    if "sm_active" in seen.record.missing:
        pytest.skip(f"this GPU does not count its SMs: {seen.record.missing['sm_active']}")
    counted = one["sm_active"][~np.isnan(one["sm_active"])]
    assert np.median(counted) == pytest.approx(100 / seen.record.sms, rel=0.2)
    record_property(
        "figure", f"watching took {sampler.cpu_ns / seen.record.duration_ns:.1%} of a core, goal 3 %"
    )
