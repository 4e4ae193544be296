"""Views: pictures of records, which are interactive in JupyterLab and PNG images everywhere else.

A view displays records. It does not measure or run anything itself. If it needs more data, such as a trace at
another block size or live readings, it calls a function that is passed to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpulab._names import load_attribute

if TYPE_CHECKING:
    from gpulab.views._base import call_after_cell as call_after_cell
    from gpulab.views.access.view import AccessMicroscope as AccessMicroscope
    from gpulab.views.allocator.view import AllocatorView as AllocatorView
    from gpulab.views.collective.view import CollectiveView as CollectiveView
    from gpulab.views.device.card import DeviceCard as DeviceCard
    from gpulab.views.device.comparison import DeviceComparison as DeviceComparison
    from gpulab.views.fragments.view import FragmentView as FragmentView
    from gpulab.views.graph.view import GraphView as GraphView
    from gpulab.views.ladder.chart import LadderChart as LadderChart
    from gpulab.views.launch.chart import LaunchChart as LaunchChart
    from gpulab.views.memory.chart import MemoryChart as MemoryChart
    from gpulab.views.monitor.chart import LoadChart as LoadChart
    from gpulab.views.occupancy.chart import OccupancyChart as OccupancyChart
    from gpulab.views.peers.chart import PeersChart as PeersChart
    from gpulab.views.pipeline.view import PipelineView as PipelineView
    from gpulab.views.precision.view import PrecisionView as PrecisionView
    from gpulab.views.roofline.chart import RooflineChart as RooflineChart
    from gpulab.views.timeline.view import TimelineView as TimelineView
    from gpulab.views.traffic.view import TrafficView as TrafficView
    from gpulab.views.warp.stepper import WarpStepper as WarpStepper

_MODULE_OF_NAME = {
    "call_after_cell": "gpulab.views._base",
    "AccessMicroscope": "gpulab.views.access.view",
    "AllocatorView": "gpulab.views.allocator.view",
    "CollectiveView": "gpulab.views.collective.view",
    "DeviceCard": "gpulab.views.device.card",
    "DeviceComparison": "gpulab.views.device.comparison",
    "FragmentView": "gpulab.views.fragments.view",
    "GraphView": "gpulab.views.graph.view",
    "LadderChart": "gpulab.views.ladder.chart",
    "LaunchChart": "gpulab.views.launch.chart",
    "MemoryChart": "gpulab.views.memory.chart",
    "LoadChart": "gpulab.views.monitor.chart",
    "OccupancyChart": "gpulab.views.occupancy.chart",
    "PeersChart": "gpulab.views.peers.chart",
    "PipelineView": "gpulab.views.pipeline.view",
    "PrecisionView": "gpulab.views.precision.view",
    "RooflineChart": "gpulab.views.roofline.chart",
    "TimelineView": "gpulab.views.timeline.view",
    "TrafficView": "gpulab.views.traffic.view",
    "WarpStepper": "gpulab.views.warp.stepper",
}


def __getattr__(name: str) -> Any:
    # Widgets and matplotlib take long to import, so they are imported with the first view.
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load_attribute(_MODULE_OF_NAME[name], name)


def __dir__() -> list[str]:
    return sorted(_MODULE_OF_NAME)
