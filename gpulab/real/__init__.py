"""The real GPU and its kernels, through CuPy, NVML and CUPTI."""
