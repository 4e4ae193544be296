"""Occupancy against NVIDIA's own calculator and by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from virtualgpu.model.architectures import ARCHITECTURES, find_arch_limits
from virtualgpu.model.devices import device_info
from virtualgpu.model.occupancy import occupancy, partitions_per_sm
from virtualgpu.records import DeviceInfo

FIXTURE = Path(__file__).parent / "data" / "cuda_occupancy.tsv"


def device_of(capability: tuple[int, int]) -> DeviceInfo:
    """Return a device with an architecture's limits."""
    arch = find_arch_limits(capability)
    return dataclasses.replace(
        device_info("A100"),
        compute_capability=capability,
        max_warps_per_sm=arch.max_warps_per_sm,
        max_blocks_per_sm=arch.max_blocks_per_sm,
        registers_per_block=arch.registers_per_block,
        shared_per_sm_bytes=arch.shared_per_sm_bytes,
        shared_per_block_optin_bytes=arch.shared_per_block_optin_bytes,
        reserved_shared_per_block_bytes=arch.reserved_shared_per_block_bytes,
    )


def fixture_rows() -> list[list[str]]:
    lines = [line for line in FIXTURE.read_text().splitlines() if not line.startswith("#")]
    return [line.split("\t") for line in lines[1:]]


def test_occupancy_equals_nvidias_calculator() -> None:
    rows = fixture_rows()
    assert len(rows) > 300
    for row in rows:
        major, minor = (int(part) for part in row[0].split("."))
        threads, registers, static, dynamic, blocks, *limits = (int(value) for value in row[1:])
        result = occupancy(device_of((major, minor)), threads, registers, static + dynamic)
        limits_by_resource = result.blocks_by_limit
        assert result.blocks_per_sm == blocks, row
        assert [
            limits_by_resource["warps"],
            limits_by_resource["blocks"],
            limits_by_resource["registers"],
        ] == limits[:3], row
        if limits[3] >= 0:
            assert limits_by_resource["shared memory"] == limits[3], row
        else:
            assert limits_by_resource["shared memory"] > limits_by_resource["blocks"], row


@pytest.mark.parametrize(
    ("device", "threads", "registers", "shared", "blocks", "percent", "limiters"),
    [
        ("A100", 256, 32, 0, 8, 100.0, ("warps", "registers")),
        ("A100", 1024, 65, 0, 0, 0.0, ("registers",)),
        ("RTX 3090", 1024, 32, 0, 1, 66.67, ("warps",)),
        ("RTX 3090", 32, 32, 0, 16, 33.33, ("blocks",)),
        ("H200", 512, 16, 0, 4, 100.0, ("warps",)),
        ("T4", 256, 32, 33 * 1024, 1, 25.0, ("shared memory",)),
        ("H200", 128, 32, 227 * 1024, 1, 6.25, ("shared memory",)),
        ("H200", 128, 32, 227 * 1024 + 1, 0, 0.0, ("shared memory",)),
        ("H200", 1025, 16, 0, 0, 0.0, ("warps",)),
    ],
)
def test_occupancy_equals_values_computed_by_hand(
    device: str,
    threads: int,
    registers: int,
    shared: int,
    blocks: int,
    percent: float,
    limiters: tuple[str, ...],
) -> None:
    result = occupancy(device_info(device), threads, registers, shared)
    assert result.blocks_per_sm == blocks
    assert result.fraction * 100 == pytest.approx(percent, abs=0.01)
    assert result.limiters == limiters


def test_invalid_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 thread"):
        occupancy(device_info("T4"), 0, 32)
    with pytest.raises(ValueError, match="cannot be negative"):
        occupancy(device_info("T4"), 32, 32, -1)


def test_only_compute_capability_6_0_has_two_sm_partitions() -> None:
    """GP100's SM has two processing blocks, every other SM since Maxwell has four (whitepapers)."""
    partitions = {
        arch.compute_capability: partitions_per_sm(arch.compute_capability) for arch in ARCHITECTURES
    }
    assert [capability for capability, count in partitions.items() if count == 2] == [(6, 0)]
    assert {*partitions.values()} == {2, 4}
