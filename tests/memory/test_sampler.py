"""Background readings: at their rate, bounded, and no longer than their owner lives."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import tracemalloc

import numpy as np
import pytest

from gpulab.sampler import Sampler


def samplers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "gpulab sampler"]


def until(condition, seconds: float = 60.0) -> None:
    end_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end_s, "the condition was not met"
        time.sleep(0.01)


def test_ten_minutes_at_20_hz_take_bounded_memory():
    sampler = Sampler(lambda: (1.0, None), 2, rate_hz=20, kept_s=600)
    for _ in range(100):
        sampler.take_reading()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(15_000):
            sampler.take_reading()
        growth = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert growth < 10_000
    assert len(sampler.rows()) == 20 * 600 + 1
    assert sampler.added_rows == 15_100


def test_sampler_keeps_its_rate_pauses_resumes_and_stops():
    sampler = Sampler(lambda: (1.0,), 1, rate_hz=50)
    sampler.start()
    until(lambda: sampler.added_rows > 20)
    sampler.pause()
    count = sampler.added_rows
    intervals_ns = np.diff(sampler.rows()[:-1, 0])
    assert np.median(intervals_ns) > 0.9e9 / 50
    assert sampler.state == "paused"
    time.sleep(0.1)
    assert sampler.added_rows <= count + 1  # one may have been in progress
    assert np.isnan(sampler.rows()[:, 1]).sum() == 1
    sampler.resume()
    until(lambda: sampler.added_rows > count + 2)
    sampler.stop()
    assert sampler.state == "stopped"
    assert not samplers()
    assert (np.diff(sampler.rows()[:, 0]) > 0).all()


def test_a_reading_that_fails_is_a_row_without_values():
    answers = iter([(1.0,), RuntimeError("no device"), (3.0,)])

    def read() -> tuple[float, ...]:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    values: list[float | None] = []
    sampler = Sampler(read, 1, on_reading=lambda number, row: values.append(row[1]))
    sampler.take_reading()
    sampler.take_reading()
    assert sampler.failure == "RuntimeError: no device"
    sampler.take_reading()
    assert sampler.failure == ""
    assert values == [1.0, None, 3.0]
    assert np.isnan(sampler.rows()[:, 1]).tolist() == [False, True, False]


def test_a_slow_reading_lowers_the_rate():
    sampler = Sampler(lambda: (time.sleep(0.05),) and (1.0,), 1, rate_hz=100)
    sampler.start()
    until(lambda: sampler.added_rows > 3)
    sampler.stop()
    assert np.diff(sampler.rows()[:, 0]).min() > 50e6


def test_the_thread_ends_with_its_sampler():
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


def test_a_running_sampler_does_not_delay_the_end_of_the_process():
    code = "from gpulab.sampler import Sampler; s = Sampler(lambda: (1.0,), 1, 100); s.start(); print('end')"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (process.returncode, process.stdout, process.stderr) == (0, "end\n", "")


@pytest.mark.parametrize("rate", [0, -1, 1000, float("nan"), "fast"])
def test_invalid_rates_are_refused(rate: float):
    with pytest.raises(ValueError, match="rate_hz"):
        Sampler(lambda: (1.0,), 1, rate)
