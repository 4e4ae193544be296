"""CUPTI, NVIDIA's profiling interface: its library, its records, and its callbacks."""
