"""What memory pools do while a program runs, seen through CuPy's interface, which real and virtual share."""
