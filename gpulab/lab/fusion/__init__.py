"""``gl.traffic``: what a function of arrays moves through memory, and what can be made one kernel."""
