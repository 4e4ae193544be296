"""A small tracing compiler: it turns a function of arrays into a graph of expressions and fused kernels.

`trace` writes down what a function does, `plan` groups it into kernels, `code` generates them, `program` runs
them, `jit` keeps them behind guards. ``gl.traffic`` shows the first four at work.
"""
