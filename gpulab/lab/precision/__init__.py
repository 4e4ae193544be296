"""Number formats of a GPU, and the result of rounding a value to each of them."""
