"""Notebook 06: parallel patterns."""
