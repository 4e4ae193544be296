"""Kernels whose CUDA C++ is generated around an expression of the program, with CuPy's rules.

`elementwise` and `reduction` are the two kinds, and `fusion` makes either of a function; `parameters` reads
parameter lists and decides types, `operands` broadcasts and lays out arguments, `header` is the C++ that
every generated kernel begins with. The result is compiled by NVRTC and run like any other kernel.
"""
