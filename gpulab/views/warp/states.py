"""The states of a lane, with symbol, name and meaning, for the picture and the widget.

The colour of a state is ``lane-KEY`` in `gpulab.views.parts.palette`.
"""

from __future__ import annotations

from typing import NamedTuple


class LaneState(NamedTuple):
    """The state of a lane in a step, with its key, symbol, name and meaning."""

    key: str
    symbol: str
    name: str
    meaning: str

    @property
    def colour(self) -> str:
        """The name of the colour that represents the lane state."""
        return f"lane-{self.key}"


ACTIVE = LaneState("active", "●", "active", "executes this")
INACTIVE = LaneState("inactive", "○", "inactive", "at another instruction, or finished")
PREDICATED_OFF = LaneState(
    "off", "◐", "predicated off", "at this instruction, but inactive because its condition is false"
)
NO_THREAD = LaneState("none", "–", "no thread", "the block's last warp has fewer threads")
LANE_STATES = (ACTIVE, INACTIVE, PREDICATED_OFF, NO_THREAD)
