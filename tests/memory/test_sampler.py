"""Background readings: at their rate, bounded, and no longer than somebody holds them."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import tracemalloc

import numpy as np
import pytest

from gpulab.sampler import Ring, Sampler


def samplers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "gpulab sampler"]


def until(look, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def test_the_ring_keeps_the_last_rows():
    ring = Ring(2, 5)
    for at in range(12):
        ring.add((at, None if at == 9 else -at))
    assert ring.since()[:, 0].tolist() == [7, 8, 9, 10, 11]
    assert np.isnan(ring.since(9)[0, 1])
    assert ring.since(10).tolist() == [[10, -10], [11, -11]]
    assert ring.since(12).shape == (0, 2)


def test_ten_minutes_at_20_hz_do_not_grow():
    sampler = Sampler(lambda: (1.0, None), 2, rate_hz=20, seconds=600)
    for _ in range(100):
        sampler.take()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(30_000):  # 25 minutes
            sampler.take()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 10_000
    assert len(sampler.rows()) == 20 * 600 + 1
    assert sampler.added == 30_100


def test_readings_come_at_the_rate_pause_and_end():
    sampler = Sampler(lambda: (1.0,), 1, rate_hz=50)
    sampler.start()
    until(lambda: sampler.added > 20)
    sampler.pause()
    taken = sampler.added
    apart = np.diff(sampler.rows()[:-1, 0])
    assert np.median(apart) > 0.9e9 / 50
    assert sampler.state == "paused"
    time.sleep(0.1)
    assert sampler.added <= taken + 1  # one that was on its way
    assert np.isnan(sampler.rows()[:, 1]).sum() == 1
    sampler.resume()
    until(lambda: sampler.added > taken + 2)
    sampler.stop()
    assert sampler.state == "stopped"
    assert not samplers()
    times = sampler.rows()[:, 0]
    assert (np.diff(times) > 0).all()


def test_a_reading_that_fails_is_a_row_without_values():
    answers = iter([(1.0,), RuntimeError("no device"), (3.0,)])

    def read() -> tuple[float, ...]:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    heard: list[float | None] = []
    sampler = Sampler(read, 1, then=lambda number, row: heard.append(row[1]))
    sampler.take()
    sampler.take()
    assert sampler.failure == "RuntimeError: no device"
    sampler.take()
    assert sampler.failure == ""
    assert heard == [1.0, None, 3.0]
    assert np.isnan(sampler.rows()[:, 1]).tolist() == [False, True, False]


def test_a_slow_reading_lowers_the_rate_and_stops_nobody():
    sampler = Sampler(lambda: (time.sleep(0.05),) and (1.0,), 1, rate_hz=100)
    sampler.start()
    until(lambda: sampler.added > 3)
    sampler.stop()
    assert np.diff(sampler.rows()[:, 0]).min() > 50e6


def test_the_thread_ends_with_who_holds_the_sampler():
    sampler = Sampler(lambda: (1.0,), 1, rate_hz=50)
    sampler.start()
    assert len(samplers()) == 1
    del sampler
    gc.collect()
    until(lambda: not samplers())
    paused = Sampler(lambda: (1.0,), 1, rate_hz=50)
    paused.start()
    paused.pause()
    del paused
    gc.collect()
    until(lambda: not samplers())


def test_the_process_ends_at_once_with_one_that_goes_on():
    code = "from gpulab.sampler import Sampler; s = Sampler(lambda: (1.0,), 1, 100); s.start(); print('end')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


@pytest.mark.parametrize("rate", [0, -1, 1000, float("nan"), "fast"])
def test_a_rate_that_is_none_is_refused(rate: float):
    with pytest.raises(ValueError, match="rate_hz"):
        Sampler(lambda: (1.0,), 1, rate)


def test_what_a_pool_counts_while_the_device_refuses_was_never_reserved():
    from gpulab.session.pools.hook import AllocationRecorder
    from gpulab.session.pools.readings import _Readings
    from virtualgpu.records.memory import MemoryReading

    counted = iter([100, 100 + (1 << 40), 300, None])
    read = _Readings(
        lambda: MemoryReading(50, next(counted), 0, 400, None), AllocationRecorder(), capacity_bytes=1 << 30
    )
    assert [read()[1] for _ in range(4)] == [100, 100, 300, None]
