"""Compilation of LLVM text to machine code for a processor, and storage of machine code on disk."""
