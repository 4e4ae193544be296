"""Notebook 08: moving data."""
