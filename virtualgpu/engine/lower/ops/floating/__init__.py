"""Floating-point numbers: arithmetic, rounding, narrow formats, conversions."""
