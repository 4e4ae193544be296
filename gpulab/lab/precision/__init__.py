"""Formats of numbers, and the result of rounding a value to each."""
