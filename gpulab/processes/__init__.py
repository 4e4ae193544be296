"""Other processes that run a function: their start, limits, communication and end."""
