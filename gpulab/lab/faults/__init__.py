"""Tools for faults: code in a separate process, and the history of a wrong number."""
