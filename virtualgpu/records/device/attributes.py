"""Tables of CUDA's device attributes and NVML's readings, with the corresponding fields of records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from virtualgpu.records.device.facts import DeviceInfo, Metric
from virtualgpu.records.kernel import WARP_SIZE

CONSTANT_MEMORY_BYTES = 65536
# cudaDeviceProp's textureAlignment and texturePitchAlignment of every GPU, and the largest number of texels
# of a linear texture. These and the sizes of textures and surfaces in the table are those of the CUDA C++
# Programming Guide's "Technical Specifications per Compute Capability" for 7.5 and newer.
TEXTURE_ALIGNMENT = 512
PITCH_ALIGNMENT = 32
MOST_LINEAR_TEXELS = 1 << 28


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAttribute:
    """One attribute of ``cudaDeviceAttr`` from the header ``driver_types.h``.

    Parameters
    ----------
    number, name
        CUDA's number and name, without ``cudaDevAttr``.
    property
        The key of the same quantity in CuPy's ``getDeviceProperties``, "" if there is none.
    field
        The field of `DeviceInfo` with its value; "" if every virtual GPU has the same `value`.
    scale
        CUDA's units per unit of the field: 1000 for clocks in kHz and MHz.
    index
        Index of the element, if the field is a tuple.
    """

    number: int
    name: str
    property: str = ""
    field: str = ""
    scale: int = 1
    index: int | None = None
    value: int = 0

    def find_value(self, info: DeviceInfo) -> int:
        """Return the value of the attribute for a device in the unit that CUDA uses."""
        if not self.field:
            return self.value
        field_value = getattr(info, self.field)
        if not field_value:
            return 0
        value: float = field_value if self.index is None else field_value[self.index]
        return round(value * self.scale)


def _attribute(
    number: int, name: str, property: str = "", field: str = "", **options: int
) -> DeviceAttribute:
    """Return a `DeviceAttribute` as a row of the table."""
    return DeviceAttribute(number=number, name=name, property=property, field=field, **options)


ATTRIBUTES: tuple[DeviceAttribute, ...] = (
    _attribute(1, "MaxThreadsPerBlock", "maxThreadsPerBlock", "max_threads_per_block"),
    _attribute(2, "MaxBlockDimX", "", "max_block_dim", index=0),
    _attribute(3, "MaxBlockDimY", "", "max_block_dim", index=1),
    _attribute(4, "MaxBlockDimZ", "", "max_block_dim", index=2),
    _attribute(5, "MaxGridDimX", "", "max_grid_dim", index=0),
    _attribute(6, "MaxGridDimY", "", "max_grid_dim", index=1),
    _attribute(7, "MaxGridDimZ", "", "max_grid_dim", index=2),
    _attribute(8, "MaxSharedMemoryPerBlock", "sharedMemPerBlock", "shared_per_block_bytes"),
    _attribute(9, "TotalConstantMemory", "totalConstMem", value=CONSTANT_MEMORY_BYTES),
    _attribute(10, "WarpSize", "warpSize", value=WARP_SIZE),
    _attribute(11, "MaxPitch", "memPitch", value=2**31 - 1),
    _attribute(12, "MaxRegistersPerBlock", "regsPerBlock", "registers_per_block"),
    _attribute(13, "ClockRate", "clockRate", "boost_clock_mhz", scale=1000),
    _attribute(14, "TextureAlignment", "textureAlignment", value=TEXTURE_ALIGNMENT),
    _attribute(16, "MultiProcessorCount", "multiProcessorCount", "sm_count"),
    _attribute(17, "KernelExecTimeout", "kernelExecTimeoutEnabled"),  # there is no display
    _attribute(18, "Integrated", "integrated"),
    _attribute(19, "CanMapHostMemory", "canMapHostMemory", value=1),
    _attribute(20, "ComputeMode", "computeMode"),
    _attribute(21, "MaxTexture1DWidth", "maxTexture1D", value=131072),
    _attribute(22, "MaxTexture2DWidth", value=131072),
    _attribute(23, "MaxTexture2DHeight", value=65536),
    _attribute(24, "MaxTexture3DWidth", value=16384),
    _attribute(25, "MaxTexture3DHeight", value=16384),
    _attribute(26, "MaxTexture3DDepth", value=16384),
    _attribute(27, "MaxTexture2DLayeredWidth", value=32768),
    _attribute(28, "MaxTexture2DLayeredHeight", value=32768),
    _attribute(29, "MaxTexture2DLayeredLayers", value=2048),
    _attribute(30, "SurfaceAlignment", "surfaceAlignment", value=TEXTURE_ALIGNMENT),
    _attribute(31, "ConcurrentKernels", "concurrentKernels", value=1),
    _attribute(32, "EccEnabled", "ECCEnabled"),
    _attribute(35, "TccDriver", "tccDriver"),
    _attribute(36, "MemoryClockRate", "memoryClockRate", "memory_clock_mhz", scale=1000),
    _attribute(37, "GlobalMemoryBusWidth", "memoryBusWidth", "memory_bus_bits"),
    _attribute(38, "L2CacheSize", "l2CacheSize", "l2_bytes"),
    _attribute(
        39, "MaxThreadsPerMultiProcessor", "maxThreadsPerMultiProcessor", "max_warps_per_sm", scale=WARP_SIZE
    ),
    _attribute(40, "AsyncEngineCount", "asyncEngineCount", "copy_engines"),
    _attribute(41, "UnifiedAddressing", "unifiedAddressing", value=1),
    _attribute(42, "MaxTexture1DLayeredWidth", value=32768),
    _attribute(43, "MaxTexture1DLayeredLayers", value=2048),
    _attribute(51, "TexturePitchAlignment", "texturePitchAlignment", value=PITCH_ALIGNMENT),
    _attribute(55, "MaxSurface1DWidth", "maxSurface1D", value=32768),
    _attribute(56, "MaxSurface2DWidth", value=131072),
    _attribute(57, "MaxSurface2DHeight", value=65536),
    _attribute(58, "MaxSurface3DWidth", value=16384),
    _attribute(59, "MaxSurface3DHeight", value=16384),
    _attribute(60, "MaxSurface3DDepth", value=16384),
    _attribute(61, "MaxSurface1DLayeredWidth", value=32768),
    _attribute(62, "MaxSurface1DLayeredLayers", value=2048),
    _attribute(63, "MaxSurface2DLayeredWidth", value=32768),
    _attribute(64, "MaxSurface2DLayeredHeight", value=32768),
    _attribute(65, "MaxSurface2DLayeredLayers", value=2048),
    _attribute(69, "MaxTexture1DLinearWidth", "maxTexture1DLinear", value=MOST_LINEAR_TEXELS),
    _attribute(70, "MaxTexture2DLinearWidth", value=131072),
    _attribute(71, "MaxTexture2DLinearHeight", value=65000),
    _attribute(72, "MaxTexture2DLinearPitch", value=2097120),
    _attribute(75, "ComputeCapabilityMajor", "major", "compute_capability", index=0),
    _attribute(76, "ComputeCapabilityMinor", "minor", "compute_capability", index=1),
    _attribute(78, "StreamPrioritiesSupported", "streamPrioritiesSupported", value=1),
    _attribute(79, "GlobalL1CacheSupported", "globalL1CacheSupported", value=1),
    _attribute(80, "LocalL1CacheSupported", "localL1CacheSupported", value=1),
    _attribute(81, "MaxSharedMemoryPerMultiprocessor", "sharedMemPerMultiprocessor", "shared_per_sm_bytes"),
    _attribute(82, "MaxRegistersPerMultiprocessor", "regsPerMultiprocessor", "registers_per_sm"),
    _attribute(83, "ManagedMemory", "managedMemory", value=1),
    _attribute(84, "IsMultiGpuBoard", "isMultiGpuBoard"),
    _attribute(86, "HostNativeAtomicSupported", "hostNativeAtomicSupported"),
    _attribute(88, "PageableMemoryAccess", "pageableMemoryAccess"),
    _attribute(89, "ConcurrentManagedAccess", "concurrentManagedAccess", value=1),
    _attribute(90, "ComputePreemptionSupported", "computePreemptionSupported", value=1),
    _attribute(91, "CanUseHostPointerForRegisteredMem", "canUseHostPointerForRegisteredMem", value=1),
    _attribute(95, "CooperativeLaunch", "cooperativeLaunch", value=1),
    _attribute(96, "CooperativeMultiDeviceLaunch", "cooperativeMultiDeviceLaunch"),
    _attribute(97, "MaxSharedMemoryPerBlockOptin", "sharedMemPerBlockOptin", "shared_per_block_optin_bytes"),
    _attribute(99, "HostRegisterSupported", value=1),
    _attribute(100, "PageableMemoryAccessUsesHostPageTables", "pageableMemoryAccessUsesHostPageTables"),
    _attribute(101, "DirectManagedMemAccessFromHost", "directManagedMemAccessFromHost"),
    _attribute(106, "MaxBlocksPerMultiprocessor", "maxBlocksPerMultiProcessor", "max_blocks_per_sm"),
    _attribute(108, "MaxPersistingL2CacheSize", "persistingL2CacheMaxSize"),
    _attribute(109, "MaxAccessPolicyWindowSize", "accessPolicyMaxWindowSize"),
    _attribute(
        111, "ReservedSharedMemoryPerBlock", "reservedSharedMemPerBlock", "reserved_shared_per_block_bytes"
    ),
    _attribute(115, "MemoryPoolsSupported", value=1),
    _attribute(120, "ClusterLaunch"),
)

# Fields of `DeviceInfo` that can be unknown.
_OPTIONAL_FIELDS = {field.name for field in fields(DeviceInfo) if "None" in str(field.type)}


def info_fields(query_attribute: Callable[[int], int | None]) -> dict[str, Any]:
    """Return the values of the `DeviceInfo` fields that CUDA's device attributes determine.

    Parameters
    ----------
    query_attribute
        Returns an attribute by number, or None if the driver does not know it. Such a field is None if that
        is possible, 0 otherwise.
    """
    value_by_field: dict[str, Any] = {}
    for attribute in ATTRIBUTES:
        name = attribute.field
        if not name:
            continue
        attribute_value = query_attribute(attribute.number)
        if attribute.index is not None:
            value_by_field[name] = (*value_by_field.get(name, ()), attribute_value or 0)
        elif name in _OPTIONAL_FIELDS and not attribute_value:
            value_by_field[name] = (
                attribute_value if attribute.scale == 1 else None
            )  # a clock of 0 is unknown
        elif name in _OPTIONAL_FIELDS and attribute.scale != 1:
            value_by_field[name] = (attribute_value or 0) / attribute.scale
        else:
            value_by_field[name] = (attribute_value or 0) // attribute.scale
    return value_by_field


# NVML's readings that are fast enough for a live chart, with their units.
READINGS: tuple[tuple[str, str], ...] = (
    ("GPU utilization", "%"),
    ("memory controller utilization", "%"),
    ("memory used", "MiB"),
    ("memory total", "MiB"),
    ("temperature", "°C"),
    ("power", "W"),
    ("power limit", "W"),
    ("SM clock", "MHz"),
    ("memory clock", "MHz"),
    ("clocks held back by", ""),
    ("fan", "%"),
    ("compute processes", ""),
    ("PCIe link", ""),
)

# cudaLimit of driver_types.h.
_NUMBER_OF_LIMIT = {
    "Stack of a thread": 0,
    "printf buffer": 1,
    "Heap of malloc in kernels": 2,
    "L2 fetch granularity": 5,
    "L2 set aside to persist": 6,
}


def driver_limits(runtime: Any) -> tuple[Metric, ...]:
    """Return the limits of the current device from ``cudaDeviceGetLimit``. The value of an unsupported limit
    is None.
    """
    limit_metrics = []
    for name, limit_number in _NUMBER_OF_LIMIT.items():
        try:
            size_bytes = runtime.deviceGetLimit(limit_number)
            unit_shift = next((unit_shift for unit_shift in (20, 10) if size_bytes >> unit_shift), 0)
            limit_metrics.append(
                Metric(name, size_bytes / (1 << unit_shift), {0: "B", 10: "KiB", 20: "MiB"}[unit_shift])
            )
        except runtime.CUDARuntimeError:
            limit_metrics.append(Metric(name, None, why="this device does not support this limit"))
    return tuple(limit_metrics)
