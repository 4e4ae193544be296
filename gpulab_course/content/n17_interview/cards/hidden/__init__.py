"""Kernels with one flaw each, drawn from a seed: those that are diagnosed without being shown."""
