"""What each operation of a real GPU had to follow, from what streams and events were asked in which order."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

# Context and number of a stream, as CUPTI gives them.
StreamKey = tuple[int, int]


@dataclass(slots=True)
class _Stream:
    frontier: tuple[int, ...] = ()
    last: int = 0
    waits: bool = False


@dataclass(slots=True)
class Order:
    """Follows the streams of a recording: give it what happened in the order of the calls.

    Rules: a stream runs in order; it follows what an event stood for when it was told to wait for it; the
    legacy default stream and the blocking streams follow each other (CUDA C++ Programming Guide, "Implicit
    Synchronization").

    Parameters
    ----------
    legacy
        The legacy default streams.
    non_blocking
        Streams that the rule of the default stream leaves alone.
    """

    legacy: Collection[StreamKey]
    non_blocking: Collection[StreamKey]
    _streams: dict[StreamKey, _Stream] = field(default_factory=dict)
    _events: dict[int, tuple[StreamKey, tuple[int, ...]]] = field(default_factory=dict)

    def operation(self, stream: StreamKey, number: int) -> tuple[int, ...]:
        """Operation `number` is given to a stream; returns what it has to follow."""
        after = self.frontier(stream)
        self.ran(stream, (number,), number)
        return after

    def ran(self, stream: StreamKey, frontier: tuple[int, ...], last: int) -> None:
        """A stream ends with the operations `frontier` from now on, `last` being its newest."""
        state = self._streams.setdefault(stream, _Stream())
        state.frontier, state.last, state.waits = frontier, last, False

    def record(self, stream: StreamKey, sync_id: int) -> None:
        """An event is recorded in a stream."""
        self._events[sync_id] = stream, self.frontier(stream)

    def wait(self, stream: StreamKey, sync_id: int) -> tuple[StreamKey | None, tuple[int, ...]]:
        """A stream waits for an event; returns where that was recorded and what it stands for."""
        of, after = self._events.get(sync_id, (None, ()))
        state = self._streams.setdefault(stream, _Stream())
        news = [number for number in after if number not in state.frontier]
        if news:
            state.frontier, state.waits = (*state.frontier, *news), True
        return of, after

    def frontier(self, stream: StreamKey) -> tuple[int, ...]:
        """What the next operation of a stream has to follow."""
        state = self._streams.setdefault(stream, _Stream())
        if stream in self.non_blocking:
            return state.frontier
        is_legacy = stream in self.legacy
        others = [
            other
            for key, other in self._streams.items()
            if key[0] == stream[0] and (key in self.legacy) != is_legacy and key not in self.non_blocking
        ]
        news = [other.frontier for other in others if other.waits or other.last > state.last]
        if not news:
            return state.frontier
        return tuple(dict.fromkeys((*state.frontier, *(number for each in news for number in each))))


def within_graph(
    spans: Sequence[tuple[int, int, int]], before: tuple[int, ...]
) -> tuple[dict[int, tuple[int, ...]], tuple[int, ...]]:
    """The order of a graph's nodes as it was seen: each follows the one that had ended last when it began.

    CUPTI does not tell a graph's edges.

    Parameters
    ----------
    spans
        Number, start and end of each node.
    before
        What the graph's launch had to follow.

    Returns
    -------
    after, last
        What each node follows, by number, and the nodes that no other follows.
    """
    after: dict[int, tuple[int, ...]] = {}
    followed: set[int] = set()
    by_end = sorted(spans, key=lambda span: span[2])
    ended = -1
    for number, start, _ in sorted(spans, key=lambda span: (span[1], span[2])):
        while ended + 1 < len(by_end) and by_end[ended + 1][2] <= start and by_end[ended + 1][0] != number:
            ended += 1
        if ended < 0:
            after[number] = before
        else:
            after[number] = (by_end[ended][0],)
            followed.add(by_end[ended][0])
    return after, tuple(number for number, _, _ in spans if number not in followed)
