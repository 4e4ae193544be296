"""Graph view: what a CUDA graph consists of, and how it runs."""
