"""Models of CuPy's and PyTorch's memory pools, which replay a trace of requests without a device."""
