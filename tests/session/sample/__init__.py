"""A kind of recording as a contributor would add it."""
