"""Notebook 14: random numbers, reproducibility."""
