"""Observations of a run: counters, traces, observers."""
