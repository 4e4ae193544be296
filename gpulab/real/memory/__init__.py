"""Memory of the real GPU: readings of its pool and its driver."""
