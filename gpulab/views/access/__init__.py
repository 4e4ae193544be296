"""The access microscope: the cost of one access of a warp, lane by lane."""
