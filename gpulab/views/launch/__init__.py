"""A launch's blocks on their SMs over time."""
