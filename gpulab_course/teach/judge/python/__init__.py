"""Judges of Python answers: functions, values and device programs, which run in a separate process."""
