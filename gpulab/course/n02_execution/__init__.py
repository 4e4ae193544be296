"""Notebook 02: the execution model."""
