"""Device cards, and comparisons of devices."""
