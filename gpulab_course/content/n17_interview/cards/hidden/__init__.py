"""Kernels with one flaw each, drawn from a seed, for diagnoses without the source."""
