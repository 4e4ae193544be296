"""The pipeline of a block: the copies that fill buffers of shared memory, and the reads that use them."""
