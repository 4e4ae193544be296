"""Parts of ``cp.cuda.runtime``: device queries, and objects by their handles."""
