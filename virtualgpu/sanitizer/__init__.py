"""Checks of a launch beyond its result: illegal accesses, races, unwritten memory, synchronisation."""

from virtualgpu.sanitizer.block_orders import ORDERS, block_sequence
from virtualgpu.sanitizer.run import TOOLS, check_tools, sanitize

__all__ = ["ORDERS", "TOOLS", "block_sequence", "check_tools", "sanitize"]
