"""Clocks and memory rates that kernels and copies reach on a GPU."""

from __future__ import annotations

from virtualgpu.model.tensor_rates import REFERENCE_FORMAT, find_tensor_tflops
from virtualgpu.records import DeviceInfo

# Share of the peak that streaming kernels reach: triad or local copy of te42kyfo/gpu-benches and
# p2pBandwidthLatencyTest over 2 x memory clock x bus.
DRAM_EFFICIENCY = {
    "HBM3e": 0.745,
    "HBM3": 0.77,
    "HBM2e": 0.86,
    "HBM2": 0.90,
    "GDDR6": 0.89,
    "GDDR6X": 0.91,
}


def clock_ghz(info: DeviceInfo) -> float:
    """Return the boost clock of a GPU in clocks per ns (GHz)."""
    return (info.boost_clock_mhz or 1500.0) / 1000.0


# Factor by which a kernel would exceed this rate if its blocks never waited for anything else (H100, H200).
DRAM_HEADROOM = 1.13


def peak_gbps(info: DeviceInfo) -> float:
    """Return the published memory bandwidth of a GPU in GB/s."""
    return info.memory_bandwidth_gbps or 300.0


def dram_gbps(info: DeviceInfo) -> float:
    """Return the memory bandwidth in GB/s that kernels reach in practice."""
    return peak_gbps(info) * DRAM_EFFICIENCY.get(info.memory_type or "", 0.85)


def tensor_rate(info: DeviceInfo) -> float:
    """Return the number of half-precision multiply-adds that the tensor cores of an SM execute per clock."""
    return 1e3 * find_tensor_tflops(info)[REFERENCE_FORMAT] / (2.0 * info.sm_count * clock_ghz(info))
