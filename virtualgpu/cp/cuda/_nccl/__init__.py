"""What is behind ``cp.cuda.nccl``: calls of ranks, who waits for whom, and what a finished call does."""
