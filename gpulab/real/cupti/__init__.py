"""CUPTI, NVIDIA's profiling interface: its library, what it records, and its callbacks."""
