"""Kernels that are generated from an expression of the program, as in CuPy.

`elementwise` and `reduction` contain the two kinds of kernels, and `fusion` generates either of them from a
function. `parameters` parses parameter lists and determines types, `operands` broadcasts arguments and lays
them out, and `header` contains the C++ in front of every generated kernel. NVRTC compiles the result, which
runs like any other kernel.
"""
