"""Recording of timelines: calls and waits with their Python lines, operations, NVTX ranges."""
