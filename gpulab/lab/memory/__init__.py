"""Views of memory: the live chart, the map of an allocator, the memory report and the memory hierarchy."""
