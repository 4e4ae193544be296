"""Timelines while they are recorded: calls and waits with their Python lines, operations, NVTX ranges."""
