"""CuPy's memory pool as data structures: chunks, size classes and the free lists, without a device."""
