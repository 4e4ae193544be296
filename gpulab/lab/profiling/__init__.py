"""Costs of a program by kernel, copy, wait and range."""
