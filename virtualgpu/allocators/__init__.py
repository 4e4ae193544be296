"""The data structures of CuPy's memory pool (chunks, size classes, free lists), without a device."""
