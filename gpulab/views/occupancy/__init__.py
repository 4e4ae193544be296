"""Theoretical occupancy against block size."""
