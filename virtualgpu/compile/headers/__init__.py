"""What CUDA C++ may include here: CUDA's own headers, and CuPy's."""
