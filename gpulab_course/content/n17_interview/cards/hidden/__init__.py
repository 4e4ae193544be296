"""Generators of kernels with one performance flaw, for diagnoses without the source."""
