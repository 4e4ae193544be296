"""The table of the ten GPUs that virtualgpu can model.

SM counts, clocks, bus widths, L2 sizes and copy engines come from published ``deviceQuery`` and
``torch`` device listings; TFLOPS, NVLink and PCIe rates from NVIDIA's datasheets, re-derived as
SMs x lanes x 2 x clock. ``DeviceSpec.source`` names them, ``.note`` describes where one row differs. Per-SM
limits follow from the compute capability (`virtualgpu.model.architectures`).

Memory is the marketed size in GiB; a real card shows a little less, since the driver and ECC keep
some. Tensor rates are dense.
"""

from __future__ import annotations

import difflib
import re
from contextlib import suppress
from dataclasses import dataclass, fields

from virtualgpu.errors import UnknownDeviceError
from virtualgpu.model.architectures import KIB, find_arch_limits
from virtualgpu.records import DeviceInfo, Dim3, Provenance

MIB = 1024 * KIB
GIB = 1024 * MIB

MAX_THREADS_PER_BLOCK = 1024
MAX_BLOCK_DIM: Dim3 = (1024, 1024, 64)
MAX_GRID_DIM: Dim3 = (2**31 - 1, 65535, 65535)
SHARED_PER_BLOCK_DEFAULT_BYTES = 48 * KIB


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """One GPU model in the table of GPUs, with its limits and rates. Bandwidths are in GB/s (10^9 bytes),
    clock rates are in MHz, and rates in TFLOPS are without sparsity.

    ``reported_bytes`` is the size that ``cudaMemGetInfo`` reports, 0 if it was not measured; it is less than
    the advertised ``memory_gib``.
    """

    name: str
    compute_capability: tuple[int, int]
    sm_count: int
    l2_mib: int
    memory_gib: int
    memory_type: str
    memory_bus_bits: int
    memory_clock_mhz: float | None
    memory_bandwidth_gbps: float
    boost_clock_mhz: float
    fp32_tflops: float
    fp16_tensor_tflops: float
    copy_engines: int | None
    pcie: str
    pcie_gbps: float
    nvlink_gbps: float
    aliases: tuple[str, ...]
    source: str
    measured: str = ""
    note: str = ""
    reported_bytes: int = 0

    @property
    def info(self) -> DeviceInfo:
        """The limits and rates of the device as a `DeviceInfo` record."""
        arch = find_arch_limits(self.compute_capability)
        field_names = {field.name for field in fields(DeviceInfo)}
        spec_values = {name: getattr(self, name) for name in field_names.intersection(DeviceSpec.__slots__)}
        arch_values = {name: getattr(arch, name) for name in field_names if hasattr(arch, name)}
        return DeviceInfo(
            **{**arch_values, **spec_values},
            provenance=Provenance("published", self.name, self.source),
            max_threads_per_block=MAX_THREADS_PER_BLOCK,
            max_block_dim=MAX_BLOCK_DIM,
            max_grid_dim=MAX_GRID_DIM,
            shared_per_block_bytes=SHARED_PER_BLOCK_DEFAULT_BYTES,
            l2_bytes=self.l2_mib * MIB,
            memory_bytes=self.reported_bytes or self.memory_gib * GIB,
            notes=self.note,
        )


DEVICES: tuple[DeviceSpec, ...] = (
    DeviceSpec(
        name="T4",
        compute_capability=(7, 5),
        sm_count=40,
        l2_mib=4,
        memory_gib=16,
        memory_type="GDDR6",
        memory_bus_bits=256,
        memory_clock_mhz=5001,
        memory_bandwidth_gbps=320,
        boost_clock_mhz=1590,
        fp32_tflops=8.1,
        fp16_tensor_tflops=65,
        copy_engines=3,
        pcie="3.0 x16",
        pcie_gbps=15.75,
        nvlink_gbps=0,
        aliases=("Tesla T4",),
        source="NVIDIA T4 datasheet; deviceQuery listing",
        note="No BF16, TF32 or FP8. 70 W: the sustained clock is far below boost.",
    ),
    DeviceSpec(
        name="V100-SXM2-32GB",
        compute_capability=(7, 0),
        sm_count=80,
        l2_mib=6,
        memory_gib=32,
        memory_type="HBM2",
        memory_bus_bits=4096,
        memory_clock_mhz=877,
        memory_bandwidth_gbps=898,
        boost_clock_mhz=1530,
        fp32_tflops=15.7,
        fp16_tensor_tflops=125,
        copy_engines=6,
        pcie="3.0 x16",
        pcie_gbps=15.75,
        nvlink_gbps=300,
        aliases=("V100", "V100 32GB", "V100 SXM2"),
        source="NVIDIA V100 datasheet; deviceQuery listing",
        measured="DRAM read 866, triad 814 GB/s; PCIe 3 H2D 12.35 GB/s (te42kyfo/gpu-benches)",
        note="Marketed as 900 GB/s. CUDA 13 dropped Volta: kernels compile for 7.5 instead.",
    ),
    DeviceSpec(
        name="A100-SXM4-80GB",
        compute_capability=(8, 0),
        sm_count=108,
        l2_mib=40,
        memory_gib=80,
        memory_type="HBM2e",
        memory_bus_bits=5120,
        memory_clock_mhz=1593,
        memory_bandwidth_gbps=2039,
        boost_clock_mhz=1410,
        fp32_tflops=19.5,
        fp16_tensor_tflops=312,
        copy_engines=3,
        pcie="4.0 x16",
        pcie_gbps=31.5,
        nvlink_gbps=600,
        aliases=("A100", "A100 80GB", "A100 SXM", "A100 SXM4"),
        source="NVIDIA A100 datasheet; deviceQuery listing",
        measured="DRAM read 1769, triad 1759 GB/s (te42kyfo/gpu-benches); H2D 26 GB/s (nvbandwidth)",
    ),
    DeviceSpec(
        name="GeForce RTX 3090",
        compute_capability=(8, 6),
        sm_count=82,
        l2_mib=6,
        memory_gib=24,
        memory_type="GDDR6X",
        memory_bus_bits=384,
        memory_clock_mhz=9751,
        memory_bandwidth_gbps=936,
        boost_clock_mhz=1695,
        fp32_tflops=35.6,
        fp16_tensor_tflops=71,
        copy_engines=2,
        pcie="4.0 x16",
        pcie_gbps=31.5,
        nvlink_gbps=112.5,
        aliases=("RTX 3090", "3090"),
        source="NVIDIA GA102 whitepaper; deviceQuery listings",
        note="Tensor rate with FP32 accumulation; board partners set boost to 1695-1740 MHz.",
    ),
    DeviceSpec(
        name="GeForce RTX 4090",
        compute_capability=(8, 9),
        sm_count=128,
        l2_mib=72,
        memory_gib=24,
        memory_type="GDDR6X",
        memory_bus_bits=384,
        memory_clock_mhz=10501,
        memory_bandwidth_gbps=1008,
        boost_clock_mhz=2520,
        fp32_tflops=82.6,
        fp16_tensor_tflops=165.2,
        copy_engines=2,
        pcie="4.0 x16",
        pcie_gbps=31.5,
        nvlink_gbps=0,
        aliases=("RTX 4090", "4090"),
        source="NVIDIA Ada whitepaper; deviceQuery listing",
        measured="local copy 918-923 GB/s read+write (p2pBandwidthLatencyTest)",
        note="Tensor rate with FP32 accumulation. No peer-to-peer access.",
    ),
    DeviceSpec(
        name="L4",
        compute_capability=(8, 9),
        sm_count=58,
        l2_mib=48,
        memory_gib=24,
        memory_type="GDDR6",
        memory_bus_bits=192,
        memory_clock_mhz=6251,
        memory_bandwidth_gbps=300,
        boost_clock_mhz=2040,
        fp32_tflops=30.3,
        fp16_tensor_tflops=121,
        copy_engines=2,
        pcie="4.0 x16",
        pcie_gbps=31.5,
        nvlink_gbps=0,
        aliases=(),
        source="NVIDIA L4 datasheet (its sparse tensor rates halved); deviceQuery listing",
        note="72 W: the sustained clock is below boost.",
    ),
    DeviceSpec(
        name="L40S",
        compute_capability=(8, 9),
        sm_count=142,
        l2_mib=96,
        memory_gib=48,
        memory_type="GDDR6",
        memory_bus_bits=384,
        memory_clock_mhz=9001,
        memory_bandwidth_gbps=864,
        boost_clock_mhz=2520,
        fp32_tflops=91.6,
        fp16_tensor_tflops=362,
        copy_engines=2,
        pcie="4.0 x16",
        pcie_gbps=31.5,
        nvlink_gbps=0,
        aliases=(),
        source="NVIDIA L40S datasheet; deviceQuery listing",
        measured="L40, same memory: DRAM read 844, triad 768 GB/s (te42kyfo/gpu-benches)",
    ),
    DeviceSpec(
        name="H100-SXM5-80GB",
        compute_capability=(9, 0),
        sm_count=132,
        l2_mib=50,
        memory_gib=80,
        memory_type="HBM3",
        memory_bus_bits=5120,
        memory_clock_mhz=2619,
        memory_bandwidth_gbps=3352,
        boost_clock_mhz=1980,
        fp32_tflops=67,
        fp16_tensor_tflops=989,
        copy_engines=3,
        pcie="5.0 x16",
        pcie_gbps=63,
        nvlink_gbps=900,
        aliases=("H100", "H100 80GB", "H100 SXM", "H100 SXM5", "H100 80GB HBM3"),
        source="NVIDIA H100 datasheet; deviceQuery listing",
        measured="local copy 2475-2515 GB/s (p2pBandwidthLatencyTest); H2D 56.7-57.1 GB/s (nvbandwidth)",
        note="The tensor rate assumes 1830 MHz, the FP32 rate 1980 MHz.",
    ),
    DeviceSpec(
        name="H200",
        compute_capability=(9, 0),
        sm_count=132,
        l2_mib=60,
        memory_gib=141,
        memory_type="HBM3e",
        memory_bus_bits=6016,
        memory_clock_mhz=3201,
        memory_bandwidth_gbps=4814,
        boost_clock_mhz=1980,
        fp32_tflops=67,
        fp16_tensor_tflops=989,
        copy_engines=3,
        pcie="5.0 x16",
        pcie_gbps=63,
        nvlink_gbps=900,
        aliases=("H200 SXM", "H200 SXM 141GB", "H200 141GB"),
        source="NVIDIA H200 datasheet; torch device listing; one H200 measured for gpulab",
        measured="triad 3534 GB/s (te42kyfo/gpu-benches); device copy 4175 GB/s read+write, H2D 55.2 GB/s",
        note="Marketed as 4.8 TB/s and 141 GB.",
        reported_bytes=150_109_880_320,
    ),
    DeviceSpec(
        name="B200",
        compute_capability=(10, 0),
        sm_count=148,
        l2_mib=126,
        memory_gib=180,
        memory_type="HBM3e",
        memory_bus_bits=8192,
        memory_clock_mhz=None,
        memory_bandwidth_gbps=7700,
        boost_clock_mhz=1965,
        fp32_tflops=75,
        fp16_tensor_tflops=2250,
        copy_engines=None,
        pcie="5.0 x16",
        pcie_gbps=63,
        nvlink_gbps=1800,
        aliases=("B200 HGX", "HGX B200", "B200 180GB"),
        source="NVIDIA HGX B200 datasheet (sparse tensor rates halved); torch device listing",
        note="Boost clock inferred from 75 TFLOPS FP32; other listings (DGX, GB200) say 8 TB/s.",
    ),
)


def list_device_names() -> tuple[str, ...]:
    """Return the names of all GPUs in the table, sorted from the oldest architecture to the newest."""
    return tuple(spec.name for spec in DEVICES)


def device_spec(name: str) -> DeviceSpec:
    """Return the row of a GPU in the table, with the sources of its numbers.

    Parameters
    ----------
    name
        Name or alias; case, spaces, punctuation and the words NVIDIA, Tesla, GeForce and RTX do
        not matter: ``"h200"``, ``"RTX 4090"`` and ``"NVIDIA GeForce RTX 4090"`` all work.

    Raises
    ------
    UnknownDeviceError
        If no row matches; the message names the nearest.
    """
    key = _normalize_name(name)
    specs_by_key = {_normalize_name(alias): spec for spec in DEVICES for alias in (spec.name, *spec.aliases)}
    if key in specs_by_key:
        return specs_by_key[key]
    nearest_keys = difflib.get_close_matches(key, list(specs_by_key), n=1, cutoff=0.4)
    hint = f" Did you mean {specs_by_key[nearest_keys[0]].name!r}?" if nearest_keys else ""
    raise UnknownDeviceError(
        f"No GPU in the table has the name {name!r}.{hint} Known GPUs: {', '.join(list_device_names())}."
    )


def device_info(name: str) -> DeviceInfo:
    """Return the compute capability, limits and rates of a GPU from the table of GPUs."""
    return device_spec(name).info


def fill_missing_facts(info: DeviceInfo) -> DeviceInfo:
    """Return the properties of a virtual GPU that is modelled on a real device.

    The virtual GPU has the limits of the real device; values that the device does not report come from the
    table of GPUs.
    """
    known_values = {record_field.name: getattr(info, record_field.name) for record_field in fields(info)}
    with suppress(UnknownDeviceError):
        listed_info = device_info(info.name)
        if listed_info.compute_capability == info.compute_capability:
            known_values = {
                name: getattr(listed_info, name) if known_value is None else known_value
                for name, known_value in known_values.items()
            }
    known_values["provenance"] = info.as_virtual
    return type(info)(**known_values)


def _normalize_name(name: str) -> str:
    """Return the distinctive words of a device name, by which spellings of it are compared."""
    plain_name = re.sub(r"[^a-z0-9]+", " ", str(name).lower()).replace("geforce", " ").replace("rtx", " ")
    significant_words = [word for word in plain_name.split() if word not in ("nvidia", "tesla", "virtual")]
    return "".join(significant_words)
