"""Convert the activity records of CUPTI, NVIDIA's profiling interface, to timelines."""
