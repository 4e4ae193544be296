"""Exercises that read what was counted and sampled: 09-roofline and 09-throttled."""
