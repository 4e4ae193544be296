"""``gl.traffic``: memory traffic of a function of arrays, and the expressions that one kernel can compute."""
