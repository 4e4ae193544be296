"""The traffic meter: a function's expressions, its kernels and fusion boundaries, and the bytes moved."""
