"""Formats of numbers: what each makes of a value."""
