"""Kernel launches: compilation, packing of arguments, checks of limits, and modelled times."""
