"""Theoretical occupancy of virtual devices: the same rules as for real ones (`gpulab.occupancy_rules`)."""

from __future__ import annotations

from gpulab.occupancy_rules import (
    REGISTER_ALLOCATION_UNIT,
    occupancy,
    occupancy_curve,
    partitions_per_sm,
    shared_allocation_unit_bytes,
)

__all__ = [
    "REGISTER_ALLOCATION_UNIT",
    "occupancy",
    "occupancy_curve",
    "partitions_per_sm",
    "shared_allocation_unit_bytes",
]
