"""Notebook 17: the interview."""
