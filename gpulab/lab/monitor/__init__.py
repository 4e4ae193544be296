"""Live load of a GPU."""
