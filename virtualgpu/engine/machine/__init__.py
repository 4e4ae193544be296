"""Machine code: LLVM text made fit for one processor, translated, kept and loaded."""
