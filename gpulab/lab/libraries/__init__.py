"""Libraries behind array code: who calls what, and choosing the fastest way."""
