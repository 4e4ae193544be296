"""Synchronisation through memory: fences, and the atomics and strong accesses that pass flags."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from virtualgpu.engine.ir import layout
from virtualgpu.sanitizer.ordering import Message, Ordering
from virtualgpu.sanitizer.sites import Site


class Flags:
    """What threads publish by atomics and strong stores after a fence, and who learns of it.

    Parameters
    ----------
    ordering
        Is told of what is published and read.
    """

    def __init__(self, ordering: Ordering) -> None:
        self.ordering = ordering
        self._messages: dict[int, Message] = {}

    def meet(
        self,
        here: Site,
        block: int,
        warp: int,
        addresses: npt.NDArray[np.int64],
        mask: int,
        fenced: int,
        wide: int,
    ) -> bool:
        """An atomic, strong or volatile access: it publishes, learns of what is published, or both.

        Lanes in `fenced` have executed a memory fence, those in `wide` one for other blocks, too.

        Returns
        -------
        bool
            Whether others may wait for it: it published something, or wrote where something was.
        """
        releasing = mask if here.releases else mask & fenced
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
                self.ordering.acquire(block, threads, message, here.acquires)
            sending = [warp * layout.LANES + lane for lane in mine if releasing >> lane & 1]
            if sending:
                message = self._messages.setdefault(key, Message())
                told = here.releases and "cta" not in here.instruction.parts
                told |= any(wide >> lane & 1 for lane in mine)
                self.ordering.release(block, sending, message, told)
        self.ordering.shared.messages = len(self._messages)
        return awaited
