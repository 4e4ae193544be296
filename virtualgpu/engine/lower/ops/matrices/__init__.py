"""LLVM IR for tensor cores: multiplication of matrix fragments, and loads and stores of fragments."""
