"""Checks of a launch beyond its result: illegal accesses, races, unwritten memory, synchronisation."""

from gpulab.virtual.sanitizer.orders import ORDERS, block_sequence
from gpulab.virtual.sanitizer.run import TOOLS, check_tools, sanitize

__all__ = ["ORDERS", "TOOLS", "block_sequence", "check_tools", "sanitize"]
