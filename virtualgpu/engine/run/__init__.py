"""Execution of generated code: worker threads, barriers, time limits and faults."""
