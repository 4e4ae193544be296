"""Watch expressions and stop conditions for a traced warp: C expressions, evaluated after every step."""
