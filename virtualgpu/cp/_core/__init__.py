"""The array itself: memory with a shape, CuPy's rules."""
