"""Kernels: read off an answer, launched on a bench, and judged in five stages."""
