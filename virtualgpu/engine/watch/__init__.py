"""Watch expressions and stops over a traced warp: C expressions evaluated for 32 lanes at every step."""
