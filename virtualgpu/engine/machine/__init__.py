"""Machine code: LLVM text adapted to one processor, translated, stored and loaded."""
