"""Graph view: the contents of a CUDA graph, and the course of its run."""
