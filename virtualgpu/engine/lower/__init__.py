"""Compiler from a PTX kernel to an LLVM module."""
