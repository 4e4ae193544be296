"""The caches of a device: sizes of L1 and L2, and the arrays that L2 contains."""
