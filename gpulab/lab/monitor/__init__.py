"""The live load of a GPU."""
