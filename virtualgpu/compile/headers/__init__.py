"""Headers that CUDA C++ can include here: CUDA's own, and CuPy's."""
