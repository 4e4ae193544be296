"""Other orders that CUDA allows for the work of streams: what a missing wait may lead to."""
