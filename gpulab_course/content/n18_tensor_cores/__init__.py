"""Notebook 18: tensor cores."""
