"""Compilation of CUDA C++ to PTX and machine code, and readers of both."""
