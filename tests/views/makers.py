"""One view of each kind, made of records that no test has to run anything for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpulab.views import (
    DeviceCard,
    DeviceComparison,
    LadderChart,
    LaunchChart,
    MemoryChart,
    OccupancyChart,
    PeersChart,
    RooflineChart,
    TimelineView,
    WarpStepper,
)
from tests.views import pools, synthetic, timelines

FIGURES: dict[str, Callable[[], Any]] = {
    "ladder": lambda: LadderChart([synthetic.ladder()]),
    "ladders": lambda: LadderChart([synthetic.ladder(), synthetic.ladder(synthetic.MEASURED, 1.1)]),
    "comparison": lambda: DeviceComparison(synthetic.devices()),
    "occupancy": lambda: OccupancyChart(synthetic.occupancies(), 256),
    "roofline": lambda: RooflineChart(synthetic.roofline()),
    "peers": lambda: PeersChart(
        synthetic.pairs_of_gpus(4), {True: 395.2, False: 38.2}, synthetic.MODELLED, "NVLink"
    ),
}
"""Charts drawn by matplotlib."""

MAKERS: dict[str, Callable[[], Any]] = {
    "memory map": pools.one,
    "memory maps": pools.two,
    "stepper": lambda: WarpStepper(synthetic.warp_trace(), synthetic.measured_blocks(synthetic.warp_trace())),
    "memory": lambda: MemoryChart(synthetic.memory_samples),
    "launch": lambda: LaunchChart(synthetic.launch_trace()),
    "beside": lambda: LaunchChart(
        synthetic.launch_trace(), beside=synthetic.launch_trace(provenance=synthetic.MEASURED, jitter=0.1)
    ),
    "card": lambda: DeviceCard(synthetic.devices()[0], synthetic.devices()[1:], synthetic.metrics),
    "few blocks": lambda: LaunchChart(synthetic.launch_trace(blocks=4)),
    "timeline": lambda: TimelineView(timelines.overlapped(), summary="Copies and kernels overlap."),
    "timelines": lambda: TimelineView(
        timelines.overlapped(3, 6), timelines.overlapped(3, 6, synthetic.MEASURED, 1.12)
    ),
}
"""Widgets."""
