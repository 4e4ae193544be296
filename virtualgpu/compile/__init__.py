"""Compilation of CUDA C++ to PTX and machine code, and parsers of PTX and machine code."""
