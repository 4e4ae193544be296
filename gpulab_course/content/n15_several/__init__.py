"""Notebook 15: several GPUs."""
