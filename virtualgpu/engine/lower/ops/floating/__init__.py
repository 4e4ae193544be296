"""LLVM IR for floating-point numbers: arithmetic, rounding, conversions, narrow formats."""
