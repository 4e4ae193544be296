"""Notebook 01: device and capability."""
