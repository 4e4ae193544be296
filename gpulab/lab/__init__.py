"""Functions that learners call as ``gl.name``, one module per subject."""
