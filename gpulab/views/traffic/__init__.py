"""The traffic meter: a function's expressions, its kernels and red edges, and the bytes moved."""
