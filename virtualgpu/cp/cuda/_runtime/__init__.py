"""Implementation of parts of ``cp.cuda.runtime``: devices, and handles of streams and events."""
