"""Exercises 09-roofline and 09-throttled, which interpret counters and samples."""
