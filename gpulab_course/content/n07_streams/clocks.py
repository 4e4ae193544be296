"""The host clock of the device in use, and results of programs with other valid orders of streams."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from gpulab import session


def host_ms() -> float:
    """Return the time of the host clock in ms. On a virtual GPU, the function returns the modelled time.

    On a virtual GPU, the real clock would measure the time of the simulation.
    """
    if session.which_device().kind == "virtual":
        return session.virtual_side().machine.clock.now_ns / 1e6
    return time.perf_counter() * 1e3


def busy(duration_us: float) -> None:
    """Keep the host busy for `duration_us` microseconds, as measured by the clock of `host_ms`."""
    if session.which_device().kind == "virtual":
        session.virtual_side().machine.clock.advance(1000 * duration_us)
        return
    end_s = time.perf_counter() + 1e-6 * duration_us
    while time.perf_counter() < end_s:
        pass


def possible_results(program: Callable[[Any], Any], orders: int = 5) -> list[Any]:
    """Run ``program(cp)`` in several valid orders of its streams, and return the distinct results.

    The program runs on a virtual GPU. A real GPU chooses one of these orders, usually the same one each time.
    """
    seed_of_result = {}
    for seed in range(orders):
        with session.use_bench_device() as bench_device:
            order_context = bench_device.machine.use_stream_order("random", seed) if seed else nullcontext()
            with order_context:
                seed_of_result[program(bench_device.cp)] = seed
    return list(seed_of_result)
