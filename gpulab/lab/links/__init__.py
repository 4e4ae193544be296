"""``gl.collective``, ``gl.peers``: communication of several GPUs, and their links."""
