"""Views: pictures of records, interactive in JupyterLab and PNG everywhere else.

A view takes records and nothing else: it neither measures nor runs anything itself. What it needs
beyond its records (a trace at another block size, live readings) it asks of a function it was given.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpulab.views._base import after_cell
    from gpulab.views.access.view import AccessMicroscope
    from gpulab.views.allocator.view import AllocatorView
    from gpulab.views.device.card import DeviceCard
    from gpulab.views.device.comparison import DeviceComparison
    from gpulab.views.graph.view import GraphView
    from gpulab.views.ladder.chart import LadderChart
    from gpulab.views.launch.chart import LaunchChart
    from gpulab.views.memory.chart import MemoryChart
    from gpulab.views.occupancy.chart import OccupancyChart
    from gpulab.views.timeline.view import TimelineView
    from gpulab.views.warp.stepper import WarpStepper

__all__ = [
    "AccessMicroscope",
    "AllocatorView",
    "DeviceCard",
    "DeviceComparison",
    "GraphView",
    "LadderChart",
    "LaunchChart",
    "MemoryChart",
    "OccupancyChart",
    "TimelineView",
    "WarpStepper",
    "after_cell",
]

_HOMES = {
    "AccessMicroscope": "gpulab.views.access.view",
    "AllocatorView": "gpulab.views.allocator.view",
    "DeviceCard": "gpulab.views.device.card",
    "DeviceComparison": "gpulab.views.device.comparison",
    "GraphView": "gpulab.views.graph.view",
    "LadderChart": "gpulab.views.ladder.chart",
    "LaunchChart": "gpulab.views.launch.chart",
    "MemoryChart": "gpulab.views.memory.chart",
    "OccupancyChart": "gpulab.views.occupancy.chart",
    "TimelineView": "gpulab.views.timeline.view",
    "WarpStepper": "gpulab.views.warp.stepper",
    "after_cell": "gpulab.views._base",
}


def __getattr__(name: str) -> Any:
    # Widgets and matplotlib take long to import: pay for them with the first view, not before.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
