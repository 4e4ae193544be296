"""LLVM IR that all kernels share: support functions, and the memory layout that they use."""
