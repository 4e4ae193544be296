"""The device's caches: how large they are, and what they hold."""
