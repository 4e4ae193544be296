"""Charts of a launch: the SM and the time of each block."""
