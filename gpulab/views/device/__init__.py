"""Cards of devices, and comparisons of devices."""
