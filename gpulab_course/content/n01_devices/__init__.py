"""Notebook 01: devices."""
