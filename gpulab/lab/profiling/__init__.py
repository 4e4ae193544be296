"""The time that a program spends in each kernel, copy, wait and range."""
