"""Functions that learners call as ``gl.name``, with one module per topic."""
