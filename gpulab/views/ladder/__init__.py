"""The memory hierarchy: latency over the working set, bandwidth by level."""
