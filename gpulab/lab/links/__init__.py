"""``gl.collective`` and ``gl.peers``: communication between several GPUs, and the links between them."""
