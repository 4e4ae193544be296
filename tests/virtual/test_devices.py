"""The device table against published figures and its own arithmetic."""

from __future__ import annotations

import re

import pytest

from virtualgpu.errors import UnknownDeviceError
from virtualgpu.model.architectures import ARCHITECTURES, find_arch_limits
from virtualgpu.model.devices import DEVICES, device_info, device_spec, list_device_names

KIB = 1024


@pytest.mark.parametrize("name", list_device_names())
def test_fp32_rate_is_lanes_times_clock(name: str) -> None:
    """Two operations (a fused multiply-add) per lane per clock give the datasheet's TFLOPS."""
    info = device_info(name)
    assert info.fp32_tflops is not None
    assert info.boost_clock_mhz is not None
    derived = info.sm_count * info.fp32_lanes_per_sm * 2 * info.boost_clock_mhz * 1e6 / 1e12
    assert derived == pytest.approx(info.fp32_tflops, rel=0.01)


@pytest.mark.parametrize("name", [spec.name for spec in DEVICES if spec.memory_clock_mhz])
def test_bandwidth_is_clock_times_bus(name: str) -> None:
    """deviceQuery's formula: 2 x memory clock x bus width / 8."""
    info = device_info(name)
    assert info.memory_clock_mhz
    assert info.memory_bus_bits
    assert info.memory_bandwidth_gbps
    derived = 2 * info.memory_clock_mhz * 1e6 * info.memory_bus_bits / 8 / 1e9
    assert derived == pytest.approx(info.memory_bandwidth_gbps, rel=0.002)


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("h200", "H200"),
        ("T4", "T4"),
        ("tesla-t4", "T4"),
        ("A100", "A100-SXM4-80GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("rtx4090", "GeForce RTX 4090"),
        ("RTX 4090", "GeForce RTX 4090"),
        ("4090", "GeForce RTX 4090"),
        ("NVIDIA GeForce RTX 3090", "GeForce RTX 3090"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
        ("virtual:H200", "H200"),
        ("HGX B200", "B200"),
    ],
)
def test_aliases(typed: str, name: str) -> None:
    assert device_info(typed).name == name


def test_provenance_of_device_data_names_the_document() -> None:
    for name in list_device_names():
        info = device_info(name)
        assert re.match(rf"published for {name} \(NVIDIA .*(datasheet|whitepaper)", info.provenance.label)
        assert info.as_virtual.label == f"modelled on virtual {name}", "what runs on it is not"


@pytest.mark.parametrize(("typed", "suggested"), [("H2000", "H200"), ("RTX 4091", "GeForce RTX 4090")])
def test_unknown_name_suggests_the_nearest(typed: str, suggested: str) -> None:
    with pytest.raises(UnknownDeviceError, match=f"Did you mean {suggested!r}"):
        device_spec(typed)


def test_an_unknown_compute_capability_lists_the_known_ones() -> None:
    with pytest.raises(UnknownDeviceError, match=r"Compute capability 4\.2.*5\.0.*12\.1"):
        find_arch_limits((4, 2))


# The CUDA C++ Programming Guide's tables, typed in again: threads and blocks per SM, 32-bit floating-point
# results per clock per SM, KiB of shared memory per SM, thousands (1024) of registers per block.
GUIDE = {
    (5, 0): (2048, 32, 128, 64, 64),
    (5, 2): (2048, 32, 128, 96, 64),
    (5, 3): (2048, 32, 128, 64, 32),
    (6, 0): (2048, 32, 64, 64, 64),
    (6, 1): (2048, 32, 128, 96, 64),
    (6, 2): (2048, 32, 128, 64, 32),
    (7, 0): (2048, 32, 64, 96, 64),
    (7, 2): (2048, 32, 64, 96, 64),
    (7, 5): (1024, 16, 64, 64, 64),
    (8, 0): (2048, 32, 64, 164, 64),
    (8, 6): (1536, 16, 128, 100, 64),
    (8, 7): (1536, 16, 128, 164, 64),
    (8, 9): (1536, 24, 128, 100, 64),
    (9, 0): (2048, 32, 128, 228, 64),
    (10, 0): (2048, 32, 128, 228, 64),
    (10, 3): (2048, 32, 128, 228, 64),
    (11, 0): (1536, 24, 128, 228, 64),
    (12, 0): (1536, 24, 128, 100, 64),
    (12, 1): (1536, 24, 128, 100, 64),
}


def test_architecture_limits_equal_the_cuda_programming_guide() -> None:
    limits = {
        arch.compute_capability: (
            arch.max_threads_per_sm,
            arch.max_blocks_per_sm,
            arch.fp32_lanes_per_sm,
            arch.shared_per_sm_bytes / KIB,
            arch.registers_per_block / KIB,
        )
        for arch in ARCHITECTURES
    }
    assert limits == GUIDE
    assert {arch.registers_per_sm for arch in ARCHITECTURES} == {65536}
