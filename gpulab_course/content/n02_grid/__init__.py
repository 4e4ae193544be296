"""Notebook 02: grid, warps, waves."""
