"""Notebook 13: libraries and precision."""
