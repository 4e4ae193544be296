"""Notebook 07: timing, streams and events."""
