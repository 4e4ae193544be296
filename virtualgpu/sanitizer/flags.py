"""Order between threads that synchronise through memory: fences with atomics or volatile accesses."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from virtualgpu.engine.ir import layout
from virtualgpu.sanitizer.ordering import Message, Ordering
from virtualgpu.sanitizer.sites import Site


class Flags:
    """The flags in memory with which the threads of a launch synchronize. One thread writes a flag, and other
    threads read it.

    Parameters
    ----------
    ordering
        Order between accesses, updated by published and read messages.
    """

    def __init__(self, ordering: Ordering) -> None:
        self.ordering = ordering
        self._messages: dict[int, Message] = {}

    def handle_access(
        self,
        site: Site,
        block: int,
        warp: int,
        addresses: npt.NDArray[np.int64],
        mask: int,
        fenced_mask: int,
        wide_fence_mask: int,
    ) -> bool:
        """Update the order of accesses after an atomic, strong or volatile access to a flag.

        The access publishes the thread's earlier accesses, receives the accesses that others published, or
        does both. Lanes in `fenced_mask` have executed a memory fence, those in `wide_fence_mask` a fence
        that other blocks see, too.

        Returns
        -------
        bool
            Whether other threads may wait for it: it published a message, or wrote to the address of one.
        """
        releasing_mask = mask if site.releases else mask & fenced_mask
        releasing_mask = releasing_mask if site.writes else 0
        if not releasing_mask and not self._messages:
            return False
        may_be_awaited = bool(releasing_mask)
        lanes = [lane for lane in range(layout.LANES) if mask >> lane & 1]
        for address in dict.fromkeys(addresses[lanes].tolist()):
            lanes_of_address = [lane for lane in lanes if addresses[lane] == address]
            threads = [warp * layout.LANES + lane for lane in lanes_of_address]
            flag_key = address if site.space in ("global", "generic") else ~(block << 20 | address)
            known_message = self._messages.get(flag_key)
            may_be_awaited |= site.writes and known_message is not None
            if (
                site.reads
                and known_message is not None
                and self.ordering.orders_more_accesses(block, threads, known_message)
            ):
                self.ordering.acquire(block, threads, known_message, site.acquires)
            publishers = [
                warp * layout.LANES + lane for lane in lanes_of_address if releasing_mask >> lane & 1
            ]
            if publishers:
                known_message = self._messages.setdefault(flag_key, Message())
                for_other_blocks = site.releases and "cta" not in site.instruction.parts
                for_other_blocks |= any(wide_fence_mask >> lane & 1 for lane in lanes_of_address)
                self.ordering.release(block, publishers, known_message, for_other_blocks)
        self.ordering.shared_state.message_count = len(self._messages)
        return may_be_awaited
