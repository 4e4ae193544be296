"""Notebook 12: fusion and JIT."""
