"""The live memory chart and the memory report on a real GPU."""

from __future__ import annotations

import gc
import time
from typing import Any

import numpy as np
import pytest

import gpulab as gl

pytestmark = pytest.mark.gpu

MIB = 1 << 20


@pytest.fixture(autouse=True)
def empty_pool(cp: Any) -> None:
    cp.get_default_memory_pool().free_all_blocks()


def test_readings_equal_those_of_the_pool_and_the_driver(cp: Any) -> None:
    pool = cp.get_default_memory_pool()
    before = pool.used_bytes()
    with gl.memory(rate_hz=50) as m:
        kept = cp.empty(64 * MIB, cp.uint8)
        time.sleep(0.1)
        gone = cp.empty(32 * MIB, cp.uint8)
        del gone
    record = m.record
    assert record.used_bytes[-1] == pool.used_bytes() == before + 64 * MIB
    assert record.reserved_bytes[-1] == pool.total_bytes()
    assert record.peak[0] == before + 96 * MIB
    free, total = cp.cuda.runtime.memGetInfo()
    assert abs(record.device_bytes[-1] - (total - free)) < 64 * MIB
    assert record.marks.allocated_bytes.sum() == 96 * MIB
    texts = [line.text for line in record.lines]
    assert "kept = cp.empty(64 * MIB, cp.uint8)" in texts
    assert record.provenance.source == "measured"
    assert record.note == ""
    assert kept.size


def test_the_report_finds_peak_line_and_arrays(cp: Any) -> None:
    def work(x: Any) -> Any:
        doubled = x * 2
        return doubled + 1

    x = cp.zeros(16 * MIB, cp.float32)
    report = gl.memory_report(work, x)
    assert report.needed_bytes == 2 * x.nbytes
    assert report.source.text == "return doubled + 1"
    assert {group.stay for group in report.alive if group.source is not None} == {"kept", "temporary"}
    assert any(group.arrays.startswith("doubled: float32") for group in report.alive)
    assert report.provenance.source == "measured"


def test_out_of_memory_is_reported_without_an_exception(cp: Any) -> None:
    pool = cp.get_default_memory_pool()
    gc.collect()  # arrays of earlier tests
    pool.free_all_blocks()  # their free blocks would serve the requests
    limit = pool.get_limit()
    pool.set_limit(size=pool.total_bytes() + 256 * MIB)
    try:
        report = gl.memory_report(lambda: [cp.empty(100 * MIB, cp.uint8) for _ in range(9)])
    finally:
        pool.set_limit(size=limit)
    assert report.failed is not None
    assert report.failed.size_bytes == 100 * MIB
    assert sum(group.blocks for group in report.alive if group.stay == "at the failure") == 2


@pytest.mark.hardware("what watching costs")
def test_the_chart_does_not_slow_a_gemm(cp: Any, record_property: Any) -> None:
    """Events on the device measure the GEMM alternately with and without the chart."""
    x = cp.random.random((4096, 4096), cp.float32)
    out = cp.empty_like(x)

    def run() -> float:
        start = cp.cuda.Event()
        end = cp.cuda.Event()
        start.record()
        for _ in range(60):
            cp.matmul(x, x, out=out)
        end.record()
        end.synchronize()
        return float(cp.cuda.get_elapsed_time(start, end))

    run()
    plain = []
    watched = []
    cpu = []
    for _ in range(6):
        plain.append(run())
        m = gl.memory(rate_hz=10)
        m.start()
        began = time.perf_counter()
        before = m._recorder.sampler.cpu_ns
        watched.append(run())
        cpu.append((m._recorder.sampler.cpu_ns - before) / 1e9 / (time.perf_counter() - began))
        m.stop()
    slower = np.median(watched) / np.median(plain) - 1
    text = f"GEMM with the chart at 10 Hz: {100 * slower:+.2f} %, and {100 * np.median(cpu):.2f} % of a core"
    print(text)
    record_property("figure", text)
    assert slower < 0.02
