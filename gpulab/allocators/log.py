"""Log of an allocator's events, in the order in which they happen."""

from __future__ import annotations

import numpy as np

from virtualgpu.records.memory import ACTIONS, Action, AllocatorEvents

_ACTION_CODES = {action: code for code, action in enumerate(ACTIONS)}


class EventLog:
    """A log of the events of an allocator model. The model calls `append_event` for each
    event.

    ``time_ns`` and ``stack`` (the index of a stack trace) belong to the current request. The caller sets them
    before each request.

    Examples
    --------
    >>> log = EventLog()
    >>> log.append_event("alloc", 0x1000, 512, 100, 0)
    >>> list(log.events().rows())
    [('alloc', 4096, 512, 100, 0, 0, -1)]
    """

    def __init__(self) -> None:
        self.time_ns = 0
        self.stack = -1
        self._event_rows: list[tuple[int, int, int, int, int, int, int]] = []

    def __len__(self) -> int:
        return len(self._event_rows)

    def append_event(
        self, action: Action, address: int, size_bytes: int, requested_bytes: int, stream: int
    ) -> None:
        """Append an event to the log, with the current time and the index of the current stack trace."""
        self._event_rows.append(
            (_ACTION_CODES[action], address, size_bytes, requested_bytes, stream, self.time_ns, self.stack)
        )

    def events(self) -> AllocatorEvents:
        """Return all logged events so far, as columns."""
        columns = np.array(self._event_rows, dtype=np.int64).reshape(-1, 7).T
        actions, addresses, sizes, requested_sizes, streams, times_ns, stack_numbers = columns
        return AllocatorEvents(
            actions=actions.astype(np.uint8),
            addresses=addresses,
            size_bytes=sizes,
            requested_bytes=requested_sizes,
            streams=streams,
            time_ns=times_ns,
            stacks=stack_numbers.astype(np.int32),
        )
