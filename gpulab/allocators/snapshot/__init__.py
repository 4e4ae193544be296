"""Read PyTorch's memory snapshots safely, and write them."""

from __future__ import annotations

from gpulab.allocators.snapshot.plain import SnapshotError
from gpulab.allocators.snapshot.reader import Snapshot, read_snapshot
from gpulab.allocators.snapshot.writer import write_snapshot

__all__ = ["Snapshot", "SnapshotError", "read_snapshot", "write_snapshot"]
