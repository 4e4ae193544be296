"""LLVM IR that all kernels share: support functions, and the layout they agree on."""
