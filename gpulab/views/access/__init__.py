"""The access microscope: what one access of a warp costs, lane by lane."""
