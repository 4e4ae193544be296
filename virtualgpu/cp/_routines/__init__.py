"""Functions of arrays."""
