"""The host's clock of the device in use, and other valid orders of the work in streams."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from gpulab import session


def host_ms() -> float:
    """Milliseconds on the host's clock: ``time.perf_counter()``, on a virtual GPU its modelled clock.

    A virtual GPU computes the same in another time than a GPU, so that the real clock means nothing there.
    """
    if session.which_device().kind == "virtual":
        return session.virtual_side().machine.clock.now_ns / 1e6
    return time.perf_counter() * 1e3


def busy(duration_us: float) -> None:
    """Keep the host busy for a while, on the clock of `host_ms`."""
    if session.which_device().kind == "virtual":
        session.virtual_side().machine.clock.advance(1000 * duration_us)
        return
    until = time.perf_counter() + 1e-6 * duration_us
    while time.perf_counter() < until:
        pass


def possible_results(program: Callable[[Any], Any], orders: int = 5) -> list[Any]:
    """Return the possible results of ``program(cp)``: in the order of its launches and in other valid orders.

    All of that on a virtual GPU; on a GPU one of these orders happens, usually the same one for months.
    """
    found = {}
    for seed in range(orders):
        with session.bench() as side, side.machine.stream_order("random", seed) if seed else nullcontext():
            found[program(side.cp)] = seed
    return list(found)
