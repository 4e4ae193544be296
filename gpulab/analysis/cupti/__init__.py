"""Timelines from the activity records of CUPTI, NVIDIA's profiling interface, as it writes them."""
