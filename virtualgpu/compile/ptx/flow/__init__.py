"""Which instructions may follow which: blocks of a function, regions of branches, calls."""
