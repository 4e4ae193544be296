"""One launch: its kernel compiled, its arguments packed, its limits checked."""
