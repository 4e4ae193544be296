"""Host time of CUDA calls and of graphs, recorded per host because the GPU does not affect it.

The virtual machine's host is `HOST`. Two were recorded with `tools.recordings.timing` (CUDA 13.0, driver 580,
CuPy 14.2, Python 3.12, 2026-11-22; ``tools/timing/data``): in ns,

=======================================  ======  ======
call                                     H100's  H200's
=======================================  ======  ======
a kernel, of 100 in a row                 5,409   6,638
a copy, pinned, 4 bytes                   4,125   3,193
a memory set, 4 bytes / 1 MiB             1,681   1,466
an event, recorded                        1,411   1,749
a graph of 10 / 1,000 nodes               2,478   2,831
=======================================  ======  ======
"""

from __future__ import annotations

from dataclasses import dataclass

from virtualgpu.records import ActivityKind, DeviceInfo


@dataclass(frozen=True, slots=True)
class HostCosts:
    """The times in ns that CUDA calls through CuPy take on one host computer."""

    name: str
    kernel_ns: float
    copy_ns: float
    memory_set_ns: float
    event_ns: float
    graph_ns: float
    graph_node_ns: float


# Kernels in a row: 6.0 us each by another recording of an H200, on its host.
H100_HOST = HostCosts("host of an H100", 5_400.0, 4_200.0, 4_400.0, 1_410.0, 1_700.0, 10.5)
H200_HOST = HostCosts("host of an H200", 6_000.0, 3_600.0, 3_900.0, 1_750.0, 1_700.0, 5.0)
HOST = H200_HOST

# Time until a graph starts, and between its nodes. Between two events a graph of one small kernel takes 3.5
# to 4.0 us on an H200, of 10 kernels 13.3 to 14.5, of 100 kernels 107, of 1,000 kernels 1,027 (684 if they
# are empty); on an H100 a graph of 1,000 takes 1,133 (970).
GRAPH_START_NS = 1_050.0
GRAPH_NODE_NS = 660.0
HOST_FUNCTION_NS = 17_000.0  # 10 Python functions as nodes take 160 us (H100) and 169 us (H200)


def launch_overhead_ns(info: DeviceInfo) -> float:
    """Return the time in ns that a kernel launch takes on the host. The time is the same for every GPU."""
    return HOST.kernel_ns


def call_ns(kind: ActivityKind) -> float:
    """Return the host time in ns of submitting an operation of the given kind to a stream."""
    if kind in ("MEMCPY", "MEMCPY2"):
        return HOST.copy_ns
    return HOST.memory_set_ns if kind == "MEMSET" else HOST.kernel_ns


def graph_launch_ns(node_count: int) -> float:
    """Return the host time in ns of launching a graph with the given number of nodes."""
    return HOST.graph_ns + node_count * HOST.graph_node_ns
