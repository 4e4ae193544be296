"""Exercises of notebook 09 on time."""
