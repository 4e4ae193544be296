"""Notebooks 13a and 13b: precision and libraries."""
