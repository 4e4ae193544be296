"""Measure the processor time of the live memory chart: ``python -m tools.bench.memory_chart``.

It runs in a Jupyter kernel of its own, so that messages to a browser are written as in a notebook, while a
cell allocates and frees.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

# Of one core, at 10 readings a second.
MAX_SHARE = 0.03
RATE_HZ = 10.0

_CHART_CODE = """
import json, time
import gpulab as gl
gl.use_device({device!r})
from gpulab import cp
m = gl.memory(rate_hz={rate_hz})
m
"""
_WORK_CODE = """
sampler = m._recorder.sampler
began, before, rows = time.perf_counter(), sampler.cpu_ns, sampler.added
turns, until = 0, began + {seconds}
while time.perf_counter() < until:
    x = cp.empty(1 << 20, cp.uint8)
    del x
    turns += 1
    time.sleep({pause_s})
took = time.perf_counter() - began
ticks = sampler.added - rows
share = (sampler.cpu_ns - before) / 1e9 / took
told = dict(share=share, ticks=ticks, hz=ticks / took, allocations=turns / took)
"""


def measure_tick_cost(
    seconds: float = 5.0, pause_s: float = 0.01, device: str = "virtual"
) -> dict[str, float]:
    """Return the chart's share of a core, its readings per second, and the cell's allocations per second."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3")
    try:
        for cell_code in (
            _CHART_CODE.format(device=device, rate_hz=RATE_HZ),
            _WORK_CODE.format(seconds=seconds, pause_s=pause_s),
        ):
            reply: Any = client.execute(
                cell_code,
                reply=True,
                timeout=120,
                user_expressions={"told": "json.dumps(globals().get('told'))"},
            )
            if reply["content"]["status"] != "ok":
                raise RuntimeError("\n".join(reply["content"]["traceback"]))
        result_text = reply["content"]["user_expressions"]["told"]["data"]["text/plain"]
        tick_cost: dict[str, float] = json.loads(result_text.strip("'"))
        return tick_cost
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def main() -> int:
    """Print the cost of the chart during a cell with few allocations, and during one that only allocates."""
    parser = argparse.ArgumentParser(description="Time the live memory chart.")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--device", default="virtual")
    options = parser.parse_args()
    max_core_share = 0.0
    for pause_s in (0.01, 0.0):
        cost = measure_tick_cost(options.seconds, pause_s, options.device)
        max_core_share = max(max_core_share, cost["share"])
        print(
            f"{cost['hz']:.1f} readings a second beside {cost['allocations']:,.0f} allocations a second: "
            f"{100 * cost['share']:.2f} % of a core, {1e6 * cost['share'] / cost['hz']:,.0f} us a reading"
        )
    print(f"at most {100 * MAX_SHARE:.0f} %: {'kept' if max_core_share <= MAX_SHARE else 'missed'}")
    return int(max_core_share > MAX_SHARE)


if __name__ == "__main__":
    raise SystemExit(main())
