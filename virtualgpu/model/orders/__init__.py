"""Other orders that CUDA permits for the work of streams, which reveal missing waits."""
