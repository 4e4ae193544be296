"""Parser, checks, inlining and control-flow analysis of PTX."""
