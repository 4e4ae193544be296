"""Tools for finding faults: code in a separate process, and the history of a wrong value in an array."""
