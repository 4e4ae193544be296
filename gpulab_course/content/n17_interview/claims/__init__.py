"""Claims to settle by experiment."""
