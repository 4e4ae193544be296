"""Notebook 05: the memory hierarchy."""
