"""Cache counters of a launch: its accesses are recorded and then replayed through a model of the caches."""
