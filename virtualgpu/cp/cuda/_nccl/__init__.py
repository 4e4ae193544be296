"""Implementation of ``cp.cuda.nccl``: the ranks' calls, their matching, and their execution."""
