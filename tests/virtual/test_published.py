"""Devices and architectures against what NVIDIA publishes, and some rules of arrays."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from tools.timing.compare import load_recording
from virtualgpu import cp
from virtualgpu.compile import nvrtc
from virtualgpu.model.architectures import ARCHITECTURES
from virtualgpu.model.devices import MIB, device_info, device_spec
from virtualgpu.model.machine import Machine
from virtualgpu.model.tensor_rates import MMA_SYNC_TFLOPS, find_mma_sync_shares, find_tensor_tflops
from virtualgpu.records.counters import TENSOR_FORMATS

# Datasheets and deviceQuery: capability, SMs, L2 in MiB, memory in GiB, bus in bits, memory and boost
# clock in MHz, copy engines, TFLOPS of tensor cores with FP16, GB/s of PCIe and NVLink.
PUBLISHED = {
    "T4": ((7, 5), 40, 4, 16, 256, 5001, 1590, 3, 65, 15.75, 0),
    "V100": ((7, 0), 80, 6, 32, 4096, 877, 1530, 6, 125, 15.75, 300),
    "A100": ((8, 0), 108, 40, 80, 5120, 1593, 1410, 3, 312, 31.5, 600),
    "RTX 3090": ((8, 6), 82, 6, 24, 384, 9751, 1695, 2, 71, 31.5, 112.5),
    "RTX 4090": ((8, 9), 128, 72, 24, 384, 10501, 2520, 2, 165.2, 31.5, 0),
    "L4": ((8, 9), 58, 48, 24, 192, 6251, 2040, 2, 121, 31.5, 0),
    "L40S": ((8, 9), 142, 96, 48, 384, 9001, 2520, 2, 362, 31.5, 0),
    "H100": ((9, 0), 132, 50, 80, 5120, 2619, 1980, 3, 989, 63, 900),
    "H200": ((9, 0), 132, 60, 141, 6016, 3201, 1980, 3, 989, 63, 900),
    "B200": ((10, 0), 148, 126, 180, 8192, None, 1965, None, 2250, 63, 1800),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_device_data_equals_published_values(name: str) -> None:
    info = device_info(name)
    row = PUBLISHED[name]
    clocks = (info.memory_clock_mhz, info.boost_clock_mhz)
    spec = device_spec(name)
    sizes = (info.l2_bytes / 1024**2, spec.memory_gib, info.memory_bus_bits)
    assert 0.99 <= info.memory_bytes / 1024**3 / spec.memory_gib <= 1
    rates = (spec.fp16_tensor_tflops, spec.pcie_gbps, spec.nvlink_gbps)
    assert (info.compute_capability, info.sm_count, *sizes, *clocks, info.copy_engines, *rates) == row
    assert (info.max_threads_per_block, info.shared_per_block_bytes) == (1024, 48 * 1024)


# Multiply-adds per SM and clock by format (architecture whitepapers: T4 and V100 have 8 tensor cores per SM,
# later GPUs 4), and the clock in MHz at which the rates are published, if it is not the boost clock.
_HOPPER = {"f16 to f16": 2048, "f16 to f32": 2048, "bf16 to f32": 2048, "tf32 to f32": 1024}
_HOPPER |= {"f8 to f32": 4096, "s8 to s32": 4096, "f64 to f64": 128}
_GEFORCE = {"f16 to f16": 512, "f16 to f32": 256, "bf16 to f32": 256, "tf32 to f32": 128, "s8 to s32": 1024}
_ADA = {"f16 to f16": 512, "f16 to f32": 512, "bf16 to f32": 512, "tf32 to f32": 256}
_ADA |= {"f8 to f32": 1024, "s8 to s32": 1024}
TENSOR_LANES: dict[str, tuple[dict[str, int], int | None]] = {
    "T4": ({"f16 to f16": 512, "f16 to f32": 512, "s8 to s32": 1024}, None),
    "V100": ({"f16 to f16": 512, "f16 to f32": 512}, None),
    "A100": (
        {
            "f16 to f16": 1024,
            "f16 to f32": 1024,
            "bf16 to f32": 1024,
            "tf32 to f32": 512,
            "s8 to s32": 2048,
            "f64 to f64": 64,
        },
        None,
    ),
    "RTX 3090": (_GEFORCE, None),
    "RTX 4090": (_GEFORCE | {"f8 to f32": 512}, None),
    "L4": (_ADA, None),
    "L40S": (_ADA, None),
    "H100": (_HOPPER, 1830),
    "H200": (_HOPPER, 1830),
    "B200": (
        {name: 2 * lanes for name, lanes in _HOPPER.items() if name != "f64 to f64"} | {"f64 to f64": 64},
        1850,
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_tensor_core_rates_equal_lanes_times_clock(name: str) -> None:
    info = device_info(name)
    rates = find_tensor_tflops(info)
    lanes, clock_mhz = TENSOR_LANES[name]
    assert set(rates) == set(lanes) <= set(TENSOR_FORMATS)
    for format_name, lanes_per_sm in lanes.items():
        derived = 2e-6 * lanes_per_sm * info.sm_count * (clock_mhz or info.boost_clock_mhz or 0)
        # FP64 of the H100 is published at 1,980 MHz.
        assert rates[format_name] == pytest.approx(derived, rel=0.09 if "f64" in format_name else 0.03)


@pytest.mark.parametrize(
    ("kind", "name", "k"),
    [
        ("f16", "f16 to f32", 16),
        ("f16_sum", "f16 to f16", 16),
        ("bf16", "bf16 to f32", 16),
        ("tf32", "tf32 to f32", 8),
        ("s8", "s8 to s32", 32),
    ],
)
def test_mma_sync_rates_equal_the_rate_measured_on_one_sm(kind: str, name: str, k: int) -> None:
    """The rate is derived from the time difference of 16 and 8 warps with 1,024 multiplications each."""
    launches = load_recording("h200_tensor")["launches"]
    time_16, time_8 = (launches[f"mma {kind}, 4 sums, {warps} warps"]["warm_ns"] for warps in (16, 8))
    of_one_sm = 8 * 1024 * 2 * 16 * 8 * k / (time_16 - time_8) / 1e3
    assert pytest.approx(132 * of_one_sm, rel=0.06) == MMA_SYNC_TFLOPS[name]


def test_only_gpus_with_wgmma_or_tcgen05_have_mma_sync_shares() -> None:
    with_shares = {name for name in PUBLISHED if find_mma_sync_shares(device_info(name))}
    assert with_shares == {"H100", "H200", "B200"}
    assert find_mma_sync_shares(device_info("B200")) == find_mma_sync_shares(device_info("H200"))
    assert all(0.4 < share < 0.8 for share in find_mma_sync_shares(device_info("H100")).values())


def test_an_unlisted_gpu_has_the_rates_of_its_architecture() -> None:
    listed = device_info("RTX 4090")
    half = dataclasses.replace(listed, name="Another GPU", sm_count=64)
    rates, half_rates = find_tensor_tflops(listed), find_tensor_tflops(half)
    assert half_rates == pytest.approx({name: rate / 2 for name, rate in rates.items()})
    older = dataclasses.replace(half, compute_capability=(8, 7))
    assert "f8 to f32" not in find_tensor_tflops(older)


def traits() -> str:
    for option in nvrtc.find_include_options():
        path = Path(option.removeprefix("-I")) / "cuda" / "__device" / "arch_traits.h"
        if path.exists():
            return path.read_text(encoding="utf-8")
    pytest.skip("CCCL's headers are not installed")


def test_architecture_limits_equal_the_cccl_table() -> None:
    """NVIDIA's CUDA C++ Core Libraries contain the programming guide's table as code."""
    text = traits()
    compared = 0
    common = dict(re.findall(r"__traits\.(\w+)\s*=\s*([^;]+);", text.split("template <arch_id")[0]))
    rows = {
        name: dict(re.findall(r"__traits\.(\w+)\s*=\s*([^;]+);", body))
        for name, body in re.findall(r"arch_traits<arch_id::sm_(\d+)>\(\) noexcept\n\{(.*?)\n\}", text, re.S)
    }
    for arch in ARCHITECTURES:
        major, minor = arch.compute_capability
        row = rows.get(f"{major}{minor}", {})
        if not {"max_threads_per_multiprocessor", "max_shared_memory_per_multiprocessor"} <= row.keys():
            continue  # the same as another
        shared = eval(row["max_shared_memory_per_multiprocessor"])
        reserved = 1024 if major >= 8 else 0
        optin = row["max_shared_memory_per_block_optin"]
        optin_bytes = (
            shared - reserved if "reserved" in optin or "per_multiprocessor" in optin else eval(optin)
        )
        assert arch.max_threads_per_sm == eval(row["max_threads_per_multiprocessor"]), arch
        assert arch.max_warps_per_sm * 32 == arch.max_threads_per_sm
        assert arch.max_blocks_per_sm == eval(row["max_blocks_per_multiprocessor"]), arch
        assert (arch.shared_per_sm_bytes, arch.shared_per_block_optin_bytes) == (shared, optin_bytes), arch
        registers = eval(row.get("max_registers_per_block", common["max_registers_per_block"]))
        assert (arch.registers_per_block, arch.registers_per_sm) == (registers, 65536), arch
        assert arch.reserved_shared_per_block_bytes == reserved
        compared += 1
    assert compared >= 12


@pytest.mark.parametrize(("start", "size"), [(0, 4 * MIB), (123, 5 * MIB + 77), (4096, 3 * MIB), (5, 100)])
def test_zeroing_a_range_leaves_its_neighbours(machine: Machine, start: int, size: int) -> None:
    x = cp.full(8 * MIB, 7, cp.uint8)
    machine.devices[0].memory.zero(x.data.ptr + start, size)
    host = x.get()
    assert not host[start : start + size].any()
    assert (host[:start] == 7).all()
    assert (host[start + size :] == 7).all()


# Arrays' own small print.


def test_flags_and_the_array_interface(machine: Machine) -> None:
    x = cp.arange(6.0).reshape(2, 3)
    assert (x.flags.c_contiguous, x.flags.f_contiguous, x.flags.forc) == (True, False, True)
    assert (x.T.flags.c_contiguous, x.T.flags.f_contiguous, x.T.flags.forc) == (False, True, True)
    assert not x[:, ::2].flags.forc
    assert cp.arange(3).flags["OWNDATA"]
    assert not x.T.flags["owndata"]
    interface = x.__cuda_array_interface__
    assert (interface["version"], interface["strides"], interface["shape"]) == (3, None, (2, 3))
    assert x.T.__cuda_array_interface__["strides"] == (8, 24)
    end = machine.devices[0].memory
    last = end.base_address + end.arena_bytes

    class Foreign:
        def __init__(self, address: int) -> None:
            self.__cuda_array_interface__ = {**interface, "data": (address, False)}

    np.testing.assert_array_equal(cp.asarray(Foreign(x.data.ptr)).get(), x.get())
    cp.asarray(Foreign(last - 48))  # just within the memory
    for outside in (last - 47, end.base_address - 1):
        with pytest.raises(ValueError, match="does not belong to a virtual GPU"):
            cp.asarray(Foreign(outside))
