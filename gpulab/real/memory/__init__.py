"""Memory of the real GPU: what its pool and driver say."""
