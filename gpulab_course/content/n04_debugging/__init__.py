"""Notebook 04: errors and debugging."""
