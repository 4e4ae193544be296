"""Implementation of `memory`: pointers with their copies, and pools."""
