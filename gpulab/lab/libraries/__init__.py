"""Libraries behind array code: their calls, and the choice of the fastest way."""
