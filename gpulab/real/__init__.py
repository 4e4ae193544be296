"""What a real GPU tells about itself and about kernels that run on it, through CuPy and NVML."""
