"""Notebook 10: the allocator."""
