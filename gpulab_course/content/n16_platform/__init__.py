"""Notebook 16: the platform."""
