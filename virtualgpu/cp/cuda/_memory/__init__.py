"""What stands behind `memory`: pointers with their copies, and the pool."""
