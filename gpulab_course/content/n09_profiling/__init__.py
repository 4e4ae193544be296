"""Notebook 09: profiling and monitoring."""
