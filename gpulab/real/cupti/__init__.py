"""Access to CUPTI, NVIDIA's profiling interface: its library, its activity records, and its callbacks."""
