"""Memory maps of a pool for each step: segments, blocks, free memory and failed requests."""
