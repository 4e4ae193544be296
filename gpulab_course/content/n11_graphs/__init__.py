"""Notebook 11: CUDA Graphs."""
