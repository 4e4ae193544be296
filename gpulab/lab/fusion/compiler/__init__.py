"""A small tracing compiler: it turns a function of arrays into a graph of expressions and fused kernels.

`trace` records the operations of a function, `plan` groups them into kernels, `code` generates the kernels,
`program` runs them, and `jit` stores them with the guards under which they are valid. ``gl.traffic`` shows
the first four steps.
"""
