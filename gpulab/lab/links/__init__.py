"""``gl.collective``, ``gl.peers``: what several GPUs tell each other, and over which links."""
