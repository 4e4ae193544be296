"""Notebook 19: attention."""
