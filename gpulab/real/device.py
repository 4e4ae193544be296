"""A real GPU's capability and limits, from the CUDA runtime's attributes and NVML."""

from __future__ import annotations

from typing import Any

import cupy

from gpulab.real.driver import NvmlError, cuda_version
from gpulab.real.nvml import NvmlDevice
from virtualgpu.records import WARP_SIZE, DeviceInfo, Provenance

# cudaDeviceAttr numbers (driver_types.h): by number, as CuPy's dictionary lacks the newer names.
_MAX_BLOCK_DIM = (2, 3, 4)
_MAX_GRID_DIM = (5, 6, 7)
_ATTRIBUTES = {
    "max_threads_per_block": 1,
    "shared_per_block": 8,
    "registers_per_block": 12,
    "clock_khz": 13,
    "sm_count": 16,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "l2": 38,
    "max_threads_per_sm": 39,
    "copy_engines": 40,
    "shared_per_sm": 81,
    "registers_per_sm": 82,
    "shared_optin": 97,
    "max_blocks_per_sm": 106,
    "reserved_shared": 111,
}


def device_name(device: cupy.cuda.Device) -> str:
    """The GPU's name, such as ``NVIDIA H200``."""
    name = cupy.cuda.runtime.getDeviceProperties(device.id)["name"]
    return name.decode() if isinstance(name, bytes) else str(name)


def open_nvml(device: cupy.cuda.Device) -> NvmlDevice | None:
    """NVML's view of a device, or None where there is none (some containers and VMs)."""
    try:
        return NvmlDevice(device.pci_bus_id)
    except NvmlError:
        return None


def device_info(device: cupy.cuda.Device, nvml: NvmlDevice | None = None) -> DeviceInfo:
    """Ask a device for everything a `DeviceInfo` holds.

    Parameters
    ----------
    device
        The CUDA device.
    nvml
        Its NVML view, for the few facts that only NVML has (FP32 lanes, PCIe, driver version).

    Returns
    -------
    DeviceInfo
        Measured. ``memory_bandwidth_gbps`` is the peak ``2 x memory clock x bus width / 8`` of
        NVIDIA's deviceQuery sample, and ``fp32_tflops`` the peak ``2 x lanes x clock``: a fused
        multiply-add a lane and cycle.
    """
    runtime = cupy.cuda.runtime
    values = {name: _attribute(device, number) for name, number in _ATTRIBUTES.items()}
    have = {name: value or 0 for name, value in values.items()}
    capability = (int(device.compute_capability[:-1]), int(device.compute_capability[-1]))
    sm_count = have["sm_count"]
    lanes = _lanes_per_sm(capability, sm_count, nvml)
    memory_mhz = have["memory_clock_khz"] / 1e3 or None
    bus_bits = values["memory_bus_bits"]
    clock_mhz = have["clock_khz"] / 1e3 or None
    name = device_name(device)
    driver = nvml.driver_version if nvml else None
    api = ".".join(map(str, cuda_version(runtime.driverGetVersion())))
    with device:
        memory_bytes = int(runtime.memGetInfo()[1])
    return DeviceInfo(
        provenance=Provenance("measured", name),
        name=name,
        compute_capability=capability,
        sm_count=sm_count,
        fp32_lanes_per_sm=lanes,
        max_threads_per_block=have["max_threads_per_block"],
        max_block_dim=_dim3(device, _MAX_BLOCK_DIM),
        max_grid_dim=_dim3(device, _MAX_GRID_DIM),
        max_warps_per_sm=have["max_threads_per_sm"] // WARP_SIZE,
        max_blocks_per_sm=have["max_blocks_per_sm"],
        registers_per_sm=have["registers_per_sm"],
        registers_per_block=have["registers_per_block"],
        shared_per_sm_bytes=have["shared_per_sm"],
        shared_per_block_bytes=have["shared_per_block"],
        shared_per_block_optin_bytes=have["shared_optin"],
        reserved_shared_per_block_bytes=have["reserved_shared"],
        l2_bytes=have["l2"],
        memory_bytes=memory_bytes,
        memory_type=None,  # no interface tells
        memory_bus_bits=bus_bits,
        memory_clock_mhz=memory_mhz,
        memory_bandwidth_gbps=round(2 * memory_mhz * bus_bits / 8 / 1e3, 1)
        if memory_mhz and bus_bits
        else None,
        boost_clock_mhz=clock_mhz,
        copy_engines=values["copy_engines"],
        fp32_tflops=round(2 * lanes * sm_count * clock_mhz / 1e6, 1) if clock_mhz else None,
        pcie_gbps=nvml.pcie_gbps if nvml else None,
        driver=f"{driver} (CUDA {api})" if driver else f"CUDA {api}",
        notes="MIG is on: this may be a slice of the GPU" if nvml and nvml.mig_enabled else "",
    )


def _attribute(device: cupy.cuda.Device, number: int) -> int | None:
    try:
        return int(cupy.cuda.runtime.deviceGetAttribute(number, device.id))
    except cupy.cuda.runtime.CUDARuntimeError:
        return None


def _dim3(device: cupy.cuda.Device, numbers: tuple[int, int, int]) -> tuple[int, int, int]:
    x, y, z = (_attribute(device, number) or 0 for number in numbers)
    return x, y, z


def _lanes_per_sm(capability: tuple[int, int], sm_count: int, nvml: NvmlDevice | None) -> int:
    cores: Any = nvml.ask("nvmlDeviceGetNumGpuCores") if nvml else None
    if cores and sm_count and cores % sm_count == 0:
        return int(cores) // sm_count
    # 32-bit floating-point results a cycle, CUDA C++ Programming Guide, "Arithmetic Instructions".
    return 64 if capability in ((6, 0), (8, 0)) or capability[0] == 7 else 128
