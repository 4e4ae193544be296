"""Checks of a launch beyond its result: illegal accesses, races, uninitialized memory, synchronisation."""

from virtualgpu.sanitizer.block_orders import ORDERS, block_sequence
from virtualgpu.sanitizer.run import sanitize

__all__ = ["ORDERS", "block_sequence", "sanitize"]
