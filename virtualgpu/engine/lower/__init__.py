"""Lowering of one PTX kernel to one LLVM module."""
