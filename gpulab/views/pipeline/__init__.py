"""The pipeline view: which warps fill and use which buffer of shared memory, and where they wait."""
