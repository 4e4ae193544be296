"""The virtual GPU's time model: costs of kernels, copies and host calls."""

from virtualgpu.model.cost.collectives import CHANNELS, StepPrices, collective_ns, step_ns, step_prices
from virtualgpu.model.cost.copies import copy_ns, memset_ns, pinned_gbps
from virtualgpu.model.cost.host import (
    GRAPH_NODE_NS,
    GRAPH_START_NS,
    HOST,
    HOST_FUNCTION_NS,
    HostCosts,
    call_ns,
    graph_launch_ns,
    launch_overhead_ns,
)
from virtualgpu.model.cost.instructions import pipe_clk
from virtualgpu.model.cost.kernels import (
    KERNEL_FLOOR_NS,
    L2_USABLE_SHARE,
    ArrayBytes,
    KernelWork,
    block_durations_ns,
    dispatch_ns,
    dram_bytes,
    estimate_machine_counters,
    kernel_start_ns,
    memory_bound_ns,
)
from virtualgpu.model.cost.links import nvlink_gbps, peer_copy_ns, peer_gbps, remote_kernel_ns
from virtualgpu.model.cost.pace import Pace
from virtualgpu.model.cost.rates import clock_ghz, dram_gbps

__all__ = [
    "CHANNELS",
    "GRAPH_NODE_NS",
    "GRAPH_START_NS",
    "HOST",
    "HOST_FUNCTION_NS",
    "KERNEL_FLOOR_NS",
    "L2_USABLE_SHARE",
    "ArrayBytes",
    "HostCosts",
    "KernelWork",
    "Pace",
    "StepPrices",
    "block_durations_ns",
    "call_ns",
    "clock_ghz",
    "collective_ns",
    "copy_ns",
    "dispatch_ns",
    "dram_bytes",
    "dram_gbps",
    "estimate_machine_counters",
    "graph_launch_ns",
    "kernel_start_ns",
    "launch_overhead_ns",
    "memory_bound_ns",
    "memset_ns",
    "nvlink_gbps",
    "peer_copy_ns",
    "peer_gbps",
    "pinned_gbps",
    "pipe_clk",
    "remote_kernel_ns",
    "step_ns",
    "step_prices",
]
