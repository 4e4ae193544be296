"""Published peak rates of tensor cores by format (`virtualgpu.records.counters.TENSOR_FORMATS`).

All rates are dense, at the clock that NVIDIA's documents assume; sparse rates were halved. The FP16 rate with
an FP32 accumulator is in the table of GPUs (`virtualgpu.model.devices`).

``mma.sync`` does not reach the rates of Hopper and Blackwell, whose own instructions (``wgmma``, ``tcgen05``)
read shared memory directly. `MMA_SYNC_TFLOPS` has the rates that it reached on an H200.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from virtualgpu.errors import UnknownDeviceError
from virtualgpu.model.devices import DEVICES, device_info, device_spec
from virtualgpu.records import DeviceInfo

REFERENCE_FORMAT = "f16 to f32"
MMA_SYNC_TFLOPS: Mapping[str, float] = {
    "f16 to f32": 644.6,
    "f16 to f16": 644.6,
    "bf16 to f32": 644.4,
    "tf32 to f32": 322.4,
    "f8 to f32": 1510.8,
    "s8 to s32": 1282.7,
}
"""Rates of ``mma.sync`` by format, recorded on an H200 (driver 580.159.04, `tools.recordings.mma_rates`).

With FP64 factors, ``mma.sync`` reached the published rate.
"""
_WITH_FASTER_INSTRUCTIONS = ((9, 0), (10, 0))

# TFLOP/s, or TOP/s of integers. A format that the device's tensor cores do not have is absent.
_H100_TFLOPS = {
    "f16 to f16": 989,
    "bf16 to f32": 989,
    "tf32 to f32": 494.5,
    "f8 to f32": 1979,
    "s8 to s32": 1979,
}
_TFLOPS_BY_DEVICE: Mapping[str, Mapping[str, float]] = {
    # NVIDIA Turing GPU architecture whitepaper, table 1, and T4 datasheet
    "T4": {"f16 to f16": 65, "s8 to s32": 130},
    # NVIDIA V100 datasheet
    "V100-SXM2-32GB": {"f16 to f16": 125},
    # NVIDIA A100 Tensor Core GPU architecture whitepaper, table 1
    "A100-SXM4-80GB": {
        "f16 to f16": 312,
        "bf16 to f32": 312,
        "tf32 to f32": 156,
        "s8 to s32": 624,
        "f64 to f64": 19.5,
    },
    # NVIDIA Ampere GA102 GPU architecture whitepaper, table 2
    "GeForce RTX 3090": {"f16 to f16": 142, "bf16 to f32": 71, "tf32 to f32": 35.6, "s8 to s32": 284},
    # NVIDIA Ada GPU architecture whitepaper, appendix A
    "GeForce RTX 4090": {
        "f16 to f16": 330.3,
        "bf16 to f32": 165.2,
        "tf32 to f32": 82.6,
        "f8 to f32": 330.3,
        "s8 to s32": 660.6,
    },
    # NVIDIA L4 and L40S datasheets
    "L4": {
        "f16 to f16": 121,
        "bf16 to f32": 121,
        "tf32 to f32": 60,
        "f8 to f32": 242.5,
        "s8 to s32": 242.5,
    },
    "L40S": {
        "f16 to f16": 362,
        "bf16 to f32": 362,
        "tf32 to f32": 183,
        "f8 to f32": 733,
        "s8 to s32": 733,
    },
    # NVIDIA H100 and H200 datasheets
    "H100-SXM5-80GB": {**_H100_TFLOPS, "f64 to f64": 67},
    "H200": {**_H100_TFLOPS, "f64 to f64": 67},
    # NVIDIA HGX B200 datasheet, an eighth of eight GPUs
    "B200": {
        "f16 to f16": 2250,
        "bf16 to f32": 2250,
        "tf32 to f32": 1100,
        "f8 to f32": 4500,
        "s8 to s32": 4500,
        "f64 to f64": 37,
    },
}


def find_tensor_tflops(info: DeviceInfo) -> Mapping[str, float]:
    """Return the peak rate of a device's tensor cores for each number format in TFLOP/s. The unit for
    integers is TOP/s.

    For a GPU that is not in the table, the rates are those of a listed GPU of the nearest earlier
    architecture, scaled by the number of SMs and the clock.

    Examples
    --------
    >>> from virtualgpu.model.devices import device_info
    >>> rates = tensor_tflops(device_info("A100"))
    >>> rates["f16 to f32"], rates["tf32 to f32"], "f8 to f32" in rates
    (312, 156, False)
    """
    with suppress(UnknownDeviceError):
        spec = device_spec(info.name)
        if spec.compute_capability == info.compute_capability:
            return {REFERENCE_FORMAT: spec.fp16_tensor_tflops, **_TFLOPS_BY_DEVICE[spec.name]}
    nearest_device = max(
        (spec for spec in DEVICES if spec.compute_capability <= max(info.compute_capability, (7, 0))),
        key=lambda spec: spec.compute_capability,
    )
    clock_mhz = info.boost_clock_mhz or nearest_device.boost_clock_mhz
    speed_ratio = info.sm_count * clock_mhz / (nearest_device.sm_count * nearest_device.boost_clock_mhz)
    return {name: rate * speed_ratio for name, rate in find_tensor_tflops(nearest_device.info).items()}


def find_mma_sync_shares(info: DeviceInfo) -> Mapping[str, float]:
    """Return the fraction of the published tensor core rate that ``mma.sync`` reached on an H200, by number
    format.

    The result is empty for GPUs on which ``mma.sync`` is the fastest instruction.

    Examples
    --------
    >>> from virtualgpu.model.devices import device_info
    >>> round(mma_sync_shares(device_info("H100"))["f16 to f32"], 2)
    0.65
    >>> mma_sync_shares(device_info("A100"))
    {}
    """
    if info.compute_capability not in _WITH_FASTER_INSTRUCTIONS:
        return {}
    published_tflops = find_tensor_tflops(device_info("H200"))
    return {name: tflops / published_tflops[name] for name, tflops in MMA_SYNC_TFLOPS.items()}
