"""CUDA's device attributes and NVML's readings: one table of names, numbers and the records they fill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from virtualgpu.records.device.facts import DeviceInfo, Metric
from virtualgpu.records.kernel import WARP_SIZE

CONSTANT_MEMORY_BYTES = 65536
# cudaDeviceProp's textureAlignment and texturePitchAlignment, of every GPU, and the most texels of a linear
# texture. These and the sizes of textures and surfaces in the table are those of the CUDA C++ Programming
# Guide's "Technical Specifications per Compute Capability" for 7.5 and newer.
TEXTURE_ALIGNMENT = 512
PITCH_ALIGNMENT = 32
MOST_LINEAR_TEXELS = 1 << 28


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAttribute:
    """One entry of ``cudaDeviceAttr`` (driver_types.h).

    Parameters
    ----------
    number, name
        CUDA's; the name without ``cudaDevAttr``.
    property
        The key of the same quantity in CuPy's ``getDeviceProperties``, "" if there is none.
    field
        The field of `DeviceInfo` that holds it, "" for what is the same on every virtual GPU: `value`.
    per
        How many of CUDA's units make one of the field's: 1000 for clocks, kHz against MHz.
    index
        Which element of the field, where that is a tuple.
    """

    number: int
    name: str
    property: str = ""
    field: str = ""
    per: int = 1
    index: int | None = None
    value: int = 0

    def of(self, info: DeviceInfo) -> int:
        """The attribute of a device as CUDA would give it."""
        if not self.field:
            return self.value
        found = getattr(info, self.field)
        return round((found if self.index is None else found[self.index]) * self.per) if found else 0


def _a(number: int, name: str, property: str = "", field: str = "", **more: int) -> DeviceAttribute:
    """A row of the table."""
    return DeviceAttribute(number=number, name=name, property=property, field=field, **more)


ATTRIBUTES: tuple[DeviceAttribute, ...] = (
    _a(1, "MaxThreadsPerBlock", "maxThreadsPerBlock", "max_threads_per_block"),
    _a(2, "MaxBlockDimX", "", "max_block_dim", index=0),
    _a(3, "MaxBlockDimY", "", "max_block_dim", index=1),
    _a(4, "MaxBlockDimZ", "", "max_block_dim", index=2),
    _a(5, "MaxGridDimX", "", "max_grid_dim", index=0),
    _a(6, "MaxGridDimY", "", "max_grid_dim", index=1),
    _a(7, "MaxGridDimZ", "", "max_grid_dim", index=2),
    _a(8, "MaxSharedMemoryPerBlock", "sharedMemPerBlock", "shared_per_block_bytes"),
    _a(9, "TotalConstantMemory", "totalConstMem", value=CONSTANT_MEMORY_BYTES),
    _a(10, "WarpSize", "warpSize", value=WARP_SIZE),
    _a(11, "MaxPitch", "memPitch", value=2**31 - 1),
    _a(12, "MaxRegistersPerBlock", "regsPerBlock", "registers_per_block"),
    _a(13, "ClockRate", "clockRate", "boost_clock_mhz", per=1000),
    _a(14, "TextureAlignment", "textureAlignment", value=TEXTURE_ALIGNMENT),
    _a(16, "MultiProcessorCount", "multiProcessorCount", "sm_count"),
    _a(17, "KernelExecTimeout", "kernelExecTimeoutEnabled"),  # that of a display: there is none
    _a(18, "Integrated", "integrated"),
    _a(19, "CanMapHostMemory", "canMapHostMemory", value=1),
    _a(20, "ComputeMode", "computeMode"),
    _a(21, "MaxTexture1DWidth", "maxTexture1D", value=131072),
    _a(22, "MaxTexture2DWidth", value=131072),
    _a(23, "MaxTexture2DHeight", value=65536),
    _a(24, "MaxTexture3DWidth", value=16384),
    _a(25, "MaxTexture3DHeight", value=16384),
    _a(26, "MaxTexture3DDepth", value=16384),
    _a(27, "MaxTexture2DLayeredWidth", value=32768),
    _a(28, "MaxTexture2DLayeredHeight", value=32768),
    _a(29, "MaxTexture2DLayeredLayers", value=2048),
    _a(30, "SurfaceAlignment", "surfaceAlignment", value=TEXTURE_ALIGNMENT),
    _a(31, "ConcurrentKernels", "concurrentKernels", value=1),
    _a(32, "EccEnabled", "ECCEnabled"),
    _a(35, "TccDriver", "tccDriver"),
    _a(36, "MemoryClockRate", "memoryClockRate", "memory_clock_mhz", per=1000),
    _a(37, "GlobalMemoryBusWidth", "memoryBusWidth", "memory_bus_bits"),
    _a(38, "L2CacheSize", "l2CacheSize", "l2_bytes"),
    _a(39, "MaxThreadsPerMultiProcessor", "maxThreadsPerMultiProcessor", "max_warps_per_sm", per=WARP_SIZE),
    _a(40, "AsyncEngineCount", "asyncEngineCount", "copy_engines"),
    _a(41, "UnifiedAddressing", "unifiedAddressing", value=1),
    _a(42, "MaxTexture1DLayeredWidth", value=32768),
    _a(43, "MaxTexture1DLayeredLayers", value=2048),
    _a(51, "TexturePitchAlignment", "texturePitchAlignment", value=PITCH_ALIGNMENT),
    _a(55, "MaxSurface1DWidth", "maxSurface1D", value=32768),
    _a(56, "MaxSurface2DWidth", value=131072),
    _a(57, "MaxSurface2DHeight", value=65536),
    _a(58, "MaxSurface3DWidth", value=16384),
    _a(59, "MaxSurface3DHeight", value=16384),
    _a(60, "MaxSurface3DDepth", value=16384),
    _a(61, "MaxSurface1DLayeredWidth", value=32768),
    _a(62, "MaxSurface1DLayeredLayers", value=2048),
    _a(63, "MaxSurface2DLayeredWidth", value=32768),
    _a(64, "MaxSurface2DLayeredHeight", value=32768),
    _a(65, "MaxSurface2DLayeredLayers", value=2048),
    _a(69, "MaxTexture1DLinearWidth", "maxTexture1DLinear", value=MOST_LINEAR_TEXELS),
    _a(70, "MaxTexture2DLinearWidth", value=131072),
    _a(71, "MaxTexture2DLinearHeight", value=65000),
    _a(72, "MaxTexture2DLinearPitch", value=2097120),
    _a(75, "ComputeCapabilityMajor", "major", "compute_capability", index=0),
    _a(76, "ComputeCapabilityMinor", "minor", "compute_capability", index=1),
    _a(78, "StreamPrioritiesSupported", "streamPrioritiesSupported", value=1),
    _a(79, "GlobalL1CacheSupported", "globalL1CacheSupported", value=1),
    _a(80, "LocalL1CacheSupported", "localL1CacheSupported", value=1),
    _a(81, "MaxSharedMemoryPerMultiprocessor", "sharedMemPerMultiprocessor", "shared_per_sm_bytes"),
    _a(82, "MaxRegistersPerMultiprocessor", "regsPerMultiprocessor", "registers_per_sm"),
    _a(83, "ManagedMemory", "managedMemory", value=1),
    _a(84, "IsMultiGpuBoard", "isMultiGpuBoard"),
    _a(86, "HostNativeAtomicSupported", "hostNativeAtomicSupported"),
    _a(88, "PageableMemoryAccess", "pageableMemoryAccess"),
    _a(89, "ConcurrentManagedAccess", "concurrentManagedAccess", value=1),
    _a(90, "ComputePreemptionSupported", "computePreemptionSupported", value=1),
    _a(91, "CanUseHostPointerForRegisteredMem", "canUseHostPointerForRegisteredMem", value=1),
    _a(95, "CooperativeLaunch", "cooperativeLaunch", value=1),
    _a(96, "CooperativeMultiDeviceLaunch", "cooperativeMultiDeviceLaunch"),
    _a(97, "MaxSharedMemoryPerBlockOptin", "sharedMemPerBlockOptin", "shared_per_block_optin_bytes"),
    _a(99, "HostRegisterSupported", value=1),
    _a(100, "PageableMemoryAccessUsesHostPageTables", "pageableMemoryAccessUsesHostPageTables"),
    _a(101, "DirectManagedMemAccessFromHost", "directManagedMemAccessFromHost"),
    _a(106, "MaxBlocksPerMultiprocessor", "maxBlocksPerMultiProcessor", "max_blocks_per_sm"),
    _a(108, "MaxPersistingL2CacheSize", "persistingL2CacheMaxSize"),
    _a(109, "MaxAccessPolicyWindowSize", "accessPolicyMaxWindowSize"),
    _a(111, "ReservedSharedMemoryPerBlock", "reservedSharedMemPerBlock", "reserved_shared_per_block_bytes"),
    _a(115, "MemoryPoolsSupported", value=1),
    _a(120, "ClusterLaunch"),
)

# What `DeviceInfo` may leave open.
_OPTIONAL = {field.name for field in fields(DeviceInfo) if "None" in str(field.type)}


def info_fields(ask: Callable[[int], int | None]) -> dict[str, Any]:
    """The fields of `DeviceInfo` that CUDA's attributes tell.

    Parameters
    ----------
    ask
        Gives an attribute by number, None where the driver does not know it. Such a field is None if it
        may be, 0 otherwise.
    """
    found: dict[str, Any] = {}
    for attribute in ATTRIBUTES:
        name = attribute.field
        if not name:
            continue
        answer = ask(attribute.number)
        if attribute.index is not None:
            found[name] = (*found.get(name, ()), answer or 0)
        elif name in _OPTIONAL and not answer:
            found[name] = answer if attribute.per == 1 else None  # no GPU has a clock of 0
        else:
            clock = name in _OPTIONAL and attribute.per != 1
            found[name] = (answer or 0) / attribute.per if clock else (answer or 0) // attribute.per
    return found


# What NVML reads quickly enough for a chart that ticks, with its unit.
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
_LIMITS = {
    "Stack of a thread": 0,
    "printf buffer": 1,
    "Heap of malloc in kernels": 2,
    "L2 fetch granularity": 5,
    "L2 set aside to persist": 6,
}


def driver_limits(runtime: Any) -> tuple[Metric, ...]:
    """What ``cudaDeviceGetLimit`` says of the current device; a limit that it lacks has no value."""
    found = []
    for name, number in _LIMITS.items():
        try:
            size_bytes = runtime.deviceGetLimit(number)
            shift = next((shift for shift in (20, 10) if size_bytes >> shift), 0)
            found.append(Metric(name, size_bytes / (1 << shift), {0: "B", 10: "KiB", 20: "MiB"}[shift]))
        except runtime.CUDARuntimeError:
            found.append(Metric(name, None, why="this device has no such limit"))
    return tuple(found)
