"""What the caches make of a launch: its accesses noted while it runs, and played through a model after it."""
