"""Libraries that array code uses: the routines that it calls, and the choice of the fastest routine."""
