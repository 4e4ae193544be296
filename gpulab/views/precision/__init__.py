"""The precision view: a number in several formats, bit by bit."""
