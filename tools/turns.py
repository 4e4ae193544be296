"""What is tried in turns: of many that are alike, `make test` takes a part each day.

Plain ``pytest`` tries all of them, and so does ``GPULAB_TEST_ALL=1 make test``. `tools.suite` says whose
turn it is, by the day and for all its processes; ``GPULAB_TURN=n make test`` repeats a day's choice.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

VARIABLE = "GPULAB_TURN"

T = TypeVar("T")


def today() -> str:
    """The turn that today's is."""
    return str(datetime.now(UTC).toordinal())


def turn() -> int | None:
    """The number of the turn, or none where everything is tried."""
    named = os.environ.get(VARIABLE, "")
    return int(named) if named else None


def part(many: Sequence[T], days: int) -> list[T]:
    """Those whose turn it is: one in so many, others each day, and each at least once within so many days."""
    now = turn()
    return list(many) if now is None else list(many[now % days :: days] or many[:1])
