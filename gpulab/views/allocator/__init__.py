"""Memory maps of a pool, step by step: segments, blocks, free memory and refusals."""
