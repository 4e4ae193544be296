"""Recording of timelines: calls and waits with their Python lines, device operations, and NVTX ranges."""
