"""Synchronisation through memory: fences, and the atomics and strong accesses that pass flags."""

from __future__ import annotations

from collections.abc import Callable

from virtualgpu.engine.ir import layout
from virtualgpu.sanitizer.history import Ints
from virtualgpu.sanitizer.ordering import Message, Ordering
from virtualgpu.sanitizer.sites import Site


class Flags:
    """What threads publish by atomics and strong stores after a fence, and who learns of it.

    Parameters
    ----------
    ordering
        Is told of what is published and read.
    flush
        Is called before the order changes, so that earlier accesses are checked by the old one.
    """

    def __init__(self, ordering: Ordering, flush: Callable[[], None]) -> None:
        self.ordering, self._flush = ordering, flush
        self._fenced: dict[int, int] = {}  # (block, warp) as one number -> lanes
        self._messages: dict[int, Message] = {}

    def fence(self, block: int, warp: int, mask: int) -> None:
        """Lanes of a warp executed a memory fence."""
        at = block << 5 | warp
        self._fenced[at] = self._fenced.get(at, 0) | mask

    def meet(self, here: Site, block: int, warp: int, addresses: Ints, mask: int) -> bool:
        """An atomic, strong or volatile access: it publishes, learns of what is published, or both.

        Returns
        -------
        bool
            Whether others may wait for it: it published something, or wrote where something was.
        """
        releasing = mask if here.releases else mask & self._fenced.get(block << 5 | warp, 0)
        releasing = releasing if here.writes else 0
        if not releasing and not self._messages:
            return False
        awaited = bool(releasing)
        lanes = [lane for lane in range(layout.LANES) if mask >> lane & 1]
        for address in dict.fromkeys(addresses[lanes].tolist()):
            mine = [lane for lane in lanes if addresses[lane] == address]
            threads = [warp * layout.LANES + lane for lane in mine]
            key = address if here.space in ("global", "generic") else ~(block << 20 | address)
            message = self._messages.get(key)
            awaited |= here.writes and message is not None
            if here.reads and message is not None and self.ordering.news(block, threads, message):
                self._flush()
                self.ordering.acquire(block, threads, message)
            sending = [warp * layout.LANES + lane for lane in mine if releasing >> lane & 1]
            if sending:
                message = self._messages.setdefault(key, Message())
                self.ordering.release(block, sending, message)
        return awaited

    def forget(self, block: int) -> None:
        """A block is over."""
        for warp in range(self.ordering.threads // layout.LANES):
            self._fenced.pop(block << 5 | warp, None)
