"""Models of memory allocators: CuPy's and PyTorch's pools replay a trace of requests without a device."""
