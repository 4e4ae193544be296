"""Exercises of notebook 09 about the time of programs."""
