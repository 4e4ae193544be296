"""Backend for real GPUs, which uses CuPy, NVML and CUPTI."""
