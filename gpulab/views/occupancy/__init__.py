"""Charts of theoretical occupancy by block size."""
