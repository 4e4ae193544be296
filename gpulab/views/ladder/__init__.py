"""Charts of the memory hierarchy: latency by size of the working set, and bandwidth by memory level."""
