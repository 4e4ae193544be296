"""Observation of a running kernel: counters, traces, and observers of accesses."""
