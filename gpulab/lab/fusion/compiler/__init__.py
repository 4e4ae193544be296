"""A small tracing compiler: a function of arrays as a graph of expressions, and kernels that join them.

`trace` writes down what a function does, `plan` groups it into kernels, `code` generates them, `program` runs
them, `jit` keeps them behind guards. ``gl.traffic`` shows the first four at work.
"""
