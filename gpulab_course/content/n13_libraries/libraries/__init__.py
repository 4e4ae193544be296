"""Exercises about libraries: a column-major BLAS, and a tuner with a cache."""
