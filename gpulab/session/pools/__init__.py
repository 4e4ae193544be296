"""Recording of memory pools through CuPy's interface, which real and virtual devices share."""
