"""Control flow of PTX: blocks of a function, regions of branches, calls."""
