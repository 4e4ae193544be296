"""Implementation of the array functions in the ``cp`` namespace."""
