"""Notebook 00: start here."""
