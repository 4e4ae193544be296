"""Records: data classes for the results of measurements and models, which views display.

All records are frozen dataclasses over NumPy columns. They do not depend on CuPy, on the virtual GPU or on
widgets. Quantities have their unit in the name, and every record has the origin of its numbers
(`Provenance`).
"""

from __future__ import annotations

from virtualgpu.records.analysis import Advice, Gap, GapCause, Overlap, PathStep, StepKind
from virtualgpu.records.counters import AccessCounters, BranchCounters, CacheCounters, KernelCounters, Space
from virtualgpu.records.device.facts import DeviceInfo, DeviceMetrics, Metric
from virtualgpu.records.graph import (
    DanglingArray,
    GraphArray,
    GraphComparison,
    GraphNode,
    GraphRecord,
    NodeKind,
    NodeParameter,
    NotAvailable,
)
from virtualgpu.records.hazards import (
    Hazard,
    Place,
    SanitizerReport,
    Severity,
    StreamHazard,
    StreamHazardKind,
    StreamReport,
    StreamUse,
)
from virtualgpu.records.kernel import SECTOR_BYTES, WARP_SIZE, Dim3, KernelSource, KernelStats
from virtualgpu.records.launch import LaunchTrace, Occupancy
from virtualgpu.records.origin import HOST_CLOCK, Provenance, Source
from virtualgpu.records.timeline import (
    Activity,
    ActivityKind,
    CopyKind,
    HostCall,
    NvtxRange,
    SourceLine,
    StreamInfo,
    Synchronization,
    SynchronizationType,
    Timeline,
    TimelineMethod,
)
from virtualgpu.records.warp import BlockTrace, WarpTrace

__all__ = [
    "HOST_CLOCK",
    "SECTOR_BYTES",
    "WARP_SIZE",
    "AccessCounters",
    "Activity",
    "ActivityKind",
    "Advice",
    "BlockTrace",
    "BranchCounters",
    "CacheCounters",
    "CopyKind",
    "DanglingArray",
    "DeviceInfo",
    "DeviceMetrics",
    "Dim3",
    "Gap",
    "GapCause",
    "GraphArray",
    "GraphComparison",
    "GraphNode",
    "GraphRecord",
    "Hazard",
    "HostCall",
    "KernelCounters",
    "KernelSource",
    "KernelStats",
    "LaunchTrace",
    "Metric",
    "NodeKind",
    "NodeParameter",
    "NotAvailable",
    "NvtxRange",
    "Occupancy",
    "Overlap",
    "PathStep",
    "Place",
    "Provenance",
    "SanitizerReport",
    "Severity",
    "Source",
    "SourceLine",
    "Space",
    "StepKind",
    "StreamHazard",
    "StreamHazardKind",
    "StreamInfo",
    "StreamReport",
    "StreamUse",
    "Synchronization",
    "SynchronizationType",
    "Timeline",
    "TimelineMethod",
    "WarpTrace",
]
