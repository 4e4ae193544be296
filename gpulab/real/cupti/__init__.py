"""Timelines of a real GPU through CUPTI, NVIDIA's profiling interface."""
