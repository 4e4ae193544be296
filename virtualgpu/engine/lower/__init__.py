"""One PTX kernel lowered to one LLVM module."""
