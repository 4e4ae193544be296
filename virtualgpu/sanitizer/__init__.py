"""Checks of a kernel launch: illegal accesses, races, uninitialized memory, and missing synchronisation."""

from virtualgpu.sanitizer.block_orders import ORDERS, block_sequence
from virtualgpu.sanitizer.run import sanitize

__all__ = ["ORDERS", "block_sequence", "sanitize"]
