"""Events of an allocator in order, in the vocabulary of PyTorch's memory snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from virtualgpu.records.memory.blocks import BlockMap
from virtualgpu.records.origin import Provenance

Action = Literal[
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
]
ACTIONS: tuple[Action, ...] = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
)
"""Actions by their code in `AllocatorEvents.actions`."""


class Frame(NamedTuple):
    """One line of a stack trace."""

    filename: str
    line: int
    function: str


Stack = tuple[Frame, ...]
"""Innermost frame first, as PyTorch's snapshots have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorEvents:
    """Allocator events as columns of equal length, in the order in which they happened.

    Parameters
    ----------
    actions : numpy.ndarray of uint8
        Codes, see `ACTIONS`. ``alloc`` is a new block of the program, ``free_requested`` its release by the
        program, ``free_completed`` the time when it is free (later, if it waited for a stream).
        ``segment_...`` are segments that the allocator reserves and releases; ``oom`` is a request that
        failed.
    addresses, size_bytes, requested_bytes, streams, time_ns : numpy.ndarray of int64
        Address, bytes rounded up by the allocator, requested bytes (0: not known), the handle of the stream,
        and time. ``oom`` has the device's free bytes as its address, as in PyTorch's snapshots.
    stacks : numpy.ndarray of int32
        Number of the stack trace in `AllocatorTrace.stacks`, -1 for none.
    """

    actions: npt.NDArray[np.uint8]
    addresses: npt.NDArray[np.int64]
    size_bytes: npt.NDArray[np.int64]
    requested_bytes: npt.NDArray[np.int64]
    streams: npt.NDArray[np.int64]
    time_ns: npt.NDArray[np.int64]
    stacks: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.actions)

    def rows(self) -> Iterator[tuple[Action, int, int, int, int, int, int]]:
        """Yield the action, address, size, requested bytes, stream, time and stack number of each event."""
        columns = (self.addresses, self.size_bytes, self.requested_bytes, self.streams, self.time_ns)
        actions = [ACTIONS[action_code] for action_code in self.actions.tolist()]
        column_lists = [column.tolist() for column in columns]
        yield from zip(actions, *column_lists, self.stacks.tolist(), strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorTrace:
    """All events of one allocator on one device, and the state before the first event.

    Parameters
    ----------
    allocator : str
        ``"CuPy's pool"``, ``"PyTorch's caching allocator"`` and so on, with its settings in ``settings``.
    first : BlockMap
        State before the first event.
    note : str
        Description of events that could not be observed, or an empty string.
    texts : tuple of str
        The source text of each stack's innermost line, if known.
    """

    provenance: Provenance
    device_id: int
    allocator: str
    first: BlockMap
    events: AllocatorEvents
    stacks: tuple[Stack, ...] = ()
    settings: str = ""
    capacity_bytes: int = 0
    note: str = ""
    texts: tuple[str, ...] = ()
