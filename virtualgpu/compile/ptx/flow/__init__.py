"""Control flow of PTX: basic blocks, the blocks that a branch controls, and calls."""
