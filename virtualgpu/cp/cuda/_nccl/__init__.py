"""Implementation of ``cp.cuda.nccl``: calls of ranks, cliques of waiting ranks, and the calls' work."""
