"""The device's caches: their sizes and their contents."""
