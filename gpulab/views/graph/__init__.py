"""The graph view: the nodes of a CUDA graph, and a timeline of its replay."""
