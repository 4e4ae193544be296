"""LLVM IR for PTX instructions, one module per group of instructions."""
