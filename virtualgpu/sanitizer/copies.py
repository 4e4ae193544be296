"""Asynchronous copies that a kernel has not waited for.

A copy is under way from its ``cp.async`` until its thread waits for it, or until the mbarrier that was
told of it completes a phase. The word it goes to belongs to
it meanwhile: whoever reads it, the copying thread as much as any other, may get what was there before,
and whoever writes it may be overwritten. From the wait on the copy is a write of that thread like any
other, which a barrier orders.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from virtualgpu.engine.ir import layout
from virtualgpu.sanitizer.history import WHO_BITS, Batch, Ints, changes

# What becomes of copies at an access; 0 is any other access. From `BOUND` on the copy is a write that the
# barrier orders, though it arrives later.
ISSUED, ARRIVED, BOUND, LANDED = 1, 2, 3, 4
EVENTS = {layout.BY_WAIT: ARRIVED, layout.TO_BARRIER: BOUND, layout.BY_BARRIER: LANDED}
_CHANGES = np.array([0, 1, -1, 0, -1])


class Copies:
    """The copies under way to each word of the shared memory of blocks in flight."""

    def __init__(self, words: int = 0) -> None:
        self.under_way = np.zeros(words, np.int32)
        self.latest = np.zeros(words, np.int64)  # segment + 1 and who issued it

    def clear(self, start: int, stop: int) -> None:
        """Forget a range of words."""
        self.under_way[start:stop] = 0

    def grow(self, words: int) -> None:
        """Make room for more words; what is known stays."""
        for name in ("under_way", "latest"):
            old = getattr(self, name)
            new = np.zeros(words, old.dtype)
            new[: old.size] = old
            setattr(self, name, new)

    def add(self, batch: Batch, step: Ints) -> tuple[npt.NDArray[np.bool_], Ints, Ints]:
        """Take in a batch, in which `step` says what becomes of copies.

        Returns
        -------
        tuple
            Which accesses met a copy under way; and for those, in order, the segment and who of the
            copy that was issued last.
        """
        order = np.argsort(batch.word, kind="stable")
        word, step = batch.word[order], step[order]
        opens = changes(word)
        starts = np.flatnonzero(opens)
        group = np.cumsum(opens) - 1
        change = _CHANGES[step]
        total = np.cumsum(change)
        before = total - change
        carried = before - before[starts][group]
        met = (carried + self.under_way[word] > 0) & (step <= ISSUED)
        issues = np.where(step == ISSUED, np.arange(word.size), -1)
        last = np.maximum.accumulate(issues)
        earlier = np.append(-1, last[:-1]) if word.size else last
        mine = earlier >= starts[group]
        packed = (batch.segment[order] + 1) << WHO_BITS | batch.who[order]
        culprit = np.where(mine, packed[earlier], self.latest[word])
        ends = np.append(starts[1:], word.size) - 1
        self.under_way[word[ends]] += (total[ends] - before[starts]).astype(np.int32)
        issued = last[ends] >= starts
        self.latest[word[ends][issued]] = packed[last[ends][issued]]
        found = np.zeros(word.size, np.bool_)
        found[order] = met
        culprits = np.zeros(word.size, np.int64)
        culprits[order] = culprit
        chosen = culprits[found]
        return found, (chosen >> WHO_BITS) - 1, chosen & ((1 << WHO_BITS) - 1)
