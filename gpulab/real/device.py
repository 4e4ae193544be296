"""Capability and limits of a real GPU, from the CUDA runtime's attributes and NVML."""

from __future__ import annotations

from typing import Any

import cupy

from gpulab.real.driver import parse_cuda_version
from gpulab.real.nvml import NvmlDevice, NvmlError, decode_text
from virtualgpu.records import DeviceInfo, Provenance
from virtualgpu.records.device.attributes import info_fields


def read_device_name(device: cupy.cuda.Device) -> str:
    """Return the name of a GPU, such as ``NVIDIA H200``."""
    return decode_text(cupy.cuda.runtime.getDeviceProperties(device.id)["name"])


def open_nvml(device: cupy.cuda.Device) -> NvmlDevice | None:
    """Return the NVML object of a device, or None if NVML is not available (as in some containers and
    VMs).
    """
    try:
        return NvmlDevice(device.pci_bus_id)
    except NvmlError:
        return None


def read_device_info(device: cupy.cuda.Device, nvml: NvmlDevice | None = None) -> DeviceInfo:
    """Query the attributes of a device, and return them as a `DeviceInfo`.

    Parameters
    ----------
    device
        The CUDA device.
    nvml
        The NVML object of the device, for values that only NVML has (FP32 lanes, PCIe, driver version).

    Returns
    -------
    DeviceInfo
        The measured values. ``memory_bandwidth_gbps`` is the peak ``2 x memory clock x bus width / 8`` of
        NVIDIA's deviceQuery sample, and ``fp32_tflops`` the peak ``2 x lanes x clock``: one fused
        multiply-add per lane and cycle.
    """
    runtime = cupy.cuda.runtime
    device_fields = info_fields(lambda number: _read_attribute(device, number))
    lanes_per_sm = _find_lanes_per_sm(device_fields["compute_capability"], device_fields["sm_count"], nvml)
    memory_mhz = device_fields["memory_clock_mhz"]
    bus_bits = device_fields["memory_bus_bits"]
    clock_mhz = device_fields["boost_clock_mhz"]
    name = read_device_name(device)
    driver_version = nvml.driver_version if nvml else None
    cuda_version_text = ".".join(map(str, parse_cuda_version(runtime.driverGetVersion())))
    with device:
        memory_bytes = int(runtime.memGetInfo()[1])
    return DeviceInfo(
        provenance=Provenance("measured", name),
        name=name,
        fp32_lanes_per_sm=lanes_per_sm,
        memory_bytes=memory_bytes,
        memory_type=None,  # no interface tells
        memory_bandwidth_gbps=round(2 * memory_mhz * bus_bits / 8 / 1e3, 1)
        if memory_mhz and bus_bits
        else None,
        fp32_tflops=round(2 * lanes_per_sm * device_fields["sm_count"] * clock_mhz / 1e6, 1)
        if clock_mhz
        else None,
        pcie_gbps=nvml.pcie_gbps if nvml else None,
        driver=f"{driver_version} (CUDA {cuda_version_text})"
        if driver_version
        else f"CUDA {cuda_version_text}",
        notes="MIG is on: this may be only a part of the GPU" if nvml and nvml.mig_enabled else "",
        **device_fields,
    )


def _read_attribute(device: cupy.cuda.Device, attribute_number: int) -> int | None:
    try:
        return int(cupy.cuda.runtime.deviceGetAttribute(attribute_number, device.id))
    except cupy.cuda.runtime.CUDARuntimeError:
        return None


def _find_lanes_per_sm(capability: tuple[int, int], sm_count: int, nvml: NvmlDevice | None) -> int:
    core_count: Any = nvml.call_or_none("nvmlDeviceGetNumGpuCores") if nvml else None
    if core_count and sm_count and core_count % sm_count == 0:
        return int(core_count) // sm_count
    # 32-bit floating-point results a cycle, CUDA C++ Programming Guide, "Arithmetic Instructions".
    return 64 if capability in ((6, 0), (8, 0)) or capability[0] == 7 else 128
