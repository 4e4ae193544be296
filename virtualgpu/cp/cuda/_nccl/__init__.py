"""Implementation of ``cp.cuda.nccl``: calls of ranks, waiting for other ranks, and the work of matched
calls."""
