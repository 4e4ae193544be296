"""Instructions as LLVM IR, one family a module."""
