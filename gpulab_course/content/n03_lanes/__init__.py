"""Notebook 03: lanes."""
