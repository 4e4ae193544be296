"""Memory of a real GPU: readings of CuPy's pool and of the driver."""
