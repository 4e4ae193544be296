"""Benchmarks of the virtual GPU on this machine, beside another simulator."""
