"""The access microscope: the sectors and banks that one access of a warp uses, lane by lane."""
