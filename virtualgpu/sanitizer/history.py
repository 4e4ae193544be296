"""The last accesses to every word of a region, and the conflicts of new ones with them.

A batch of accesses is sorted by word. Each access is compared with the nearest earlier ones of every
class it can conflict with: the last one, the last by another thread, and the last by another warp
(shared memory) or block (global memory); first within the batch, then in the region's history.
So the first race on a word is found whenever there is one between such neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virtualgpu.sanitizer.ordering import Ordering

Ints = npt.NDArray[np.int64]

# Classes of accesses. Atomics and other strong operations do not race with each other.
WEAK_WRITE, STRONG_WRITE, WEAK_READ, STRONG_READ = 0, 1, 2, 3
_KEPT = (WEAK_WRITE, STRONG_WRITE, WEAK_READ)
# For each class of the earlier access: the classes of later ones that conflict with it.
_RIVALS = {
    WEAK_WRITE: (WEAK_WRITE, STRONG_WRITE, WEAK_READ, STRONG_READ),
    STRONG_WRITE: (WEAK_WRITE, WEAK_READ),
    WEAK_READ: (WEAK_WRITE, STRONG_WRITE),
}
_IS_RIVAL = {kind: np.isin(np.arange(4), rivals) for kind, rivals in _RIVALS.items()}
# Reads of a region without writes that wait to be sorted.
_READS_KEPT = 4 << 20
THREAD_BITS = 10
WHO_BITS = 32
_WHO = (1 << WHO_BITS) - 1
_THREAD = (1 << THREAD_BITS) - 1
UNKNOWN_VALUE = -0x5EED_5EED_5EED_5EED


@dataclass(slots=True)
class Batch:
    """Accesses in the order they happened, one row a thread and word.

    ``who`` is ``site << THREAD_BITS | thread``, ``coarse`` the warp or block, ``reads`` also marks
    atomics, which read too.
    """

    word: Ints
    segment: Ints
    who: Ints
    coarse: Ints
    kind: Ints
    reads: npt.NDArray[np.bool_]
    value: Ints

    def take(self, rows: npt.NDArray[np.integer | np.bool_]) -> Batch:
        return Batch(*(getattr(self, name)[rows] for name in self.__slots__))


@dataclass(slots=True)
class Conflicts:
    """Pairs of accesses that race: what the later one met. ``agree``: both wrote the same value."""

    word: Ints
    first_segment: Ints
    first_who: Ints
    first_wrote: npt.NDArray[np.bool_]
    segment: Ints
    who: Ints
    wrote: npt.NDArray[np.bool_]
    agree: npt.NDArray[np.bool_]


class History:
    """The last accesses to each of a number of words.

    Parameters
    ----------
    words
        Words (granules of access) in the region.
    coarse_is_warp
        Whether rows of one region are told apart by warp (shared) or by block (global).
    written
        Words whose first read is fine; None: all of them.
    races
        Whether to look for races, beside words that were never written.
    """

    def __init__(
        self,
        words: int,
        ordering: Ordering,
        *,
        coarse_is_warp: bool,
        written: npt.NDArray[np.bool_] | None = None,
        races: bool = True,
    ) -> None:
        self.words, self.ordering = words, ordering
        self.coarse_is_warp = coarse_is_warp
        self.written = written
        # The host maps pages of zeros when they are first touched, so large regions cost little.
        size = words if races else 0
        self.last = np.zeros((len(_KEPT), size), np.int64)
        self.other = np.zeros((len(_KEPT), size), np.int64)
        self.value = np.zeros(size, np.int64)
        self.races = races
        self.has_writes = False
        self._reads: list[Batch] = []
        self._reads_kept = 0

    def clear(self, start: int, stop: int) -> None:
        """Forget a range of words."""
        if self.races:
            self.last[:, start:stop] = 0
            self.other[:, start:stop] = 0
        if self.written is not None:
            self.written[start:stop] = False

    def add(self, batch: Batch) -> tuple[Conflicts | None, Batch | None]:
        """Check a batch against itself and the history, then remember it.

        Returns
        -------
        tuple
            The conflicts, and the reads of words never written.
        """
        writes = batch.kind <= STRONG_WRITE
        if self.races and not self.has_writes:
            if not writes.any() and self.written is None:
                self._keep_reads(batch)
                return None, None
            self._remember_reads()
        order = np.argsort(batch.word, kind="stable")
        batch, writes = batch.take(order), writes[order]
        opens = changes(batch.word)
        starts = np.flatnonzero(opens)
        unwritten = self._unwritten(batch, writes, starts, opens)
        conflicts = None
        if self.races:
            if self.has_writes or writes.any():
                suspects = self._suspects(batch, writes, opens)
                if suspects.any():
                    conflicts = self._conflicts(batch.take(suspects))
                self.has_writes = True
            self._remember(batch)
        return conflicts, unwritten

    def _keep_reads(self, batch: Batch) -> None:
        """Most inputs are never written, and then their reads need no sorting."""
        self._reads.append(batch)
        self._reads_kept += batch.word.size
        if self._reads_kept > _READS_KEPT:
            self._remember_reads()

    def _remember_reads(self) -> None:
        if self._reads:
            columns = ([getattr(b, name) for b in self._reads] for name in Batch.__slots__)
            reads = Batch(*map(np.concatenate, columns))
            self._reads.clear()
            self._reads_kept = 0
            self._remember(reads.take(np.argsort(reads.word, kind="stable")))

    def _unwritten(
        self, batch: Batch, writes: npt.NDArray[np.bool_], starts: Ints, opens: npt.NDArray[np.bool_]
    ) -> Batch | None:
        if self.written is None:
            return None
        doubtful = batch.reads & ~self.written[batch.word]
        found = None
        if doubtful.any():
            doubtful &= _before(writes) < starts[np.cumsum(opens) - 1]
            found = batch.take(doubtful) if doubtful.any() else None
        self.written[batch.word[writes]] = True
        return found

    def _suspects(
        self, batch: Batch, writes: npt.NDArray[np.bool_], opens: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        """Accesses that may race: someone writes the word, and another thread of the block uses it in
        the same epoch, or another block does at any time."""
        block, epoch = self.ordering.columns[0][batch.segment], self.ordering.columns[1][batch.segment]
        thread = batch.who & _THREAD
        run = opens | changes(epoch) | changes(block)
        runs = np.flatnonzero(run)
        low, high = np.minimum.reduceat(thread, runs), np.maximum.reduceat(thread, runs)
        written = np.logical_or.reduceat(writes, runs)
        starts = np.flatnonzero(opens)
        first_run = np.cumsum(run)[starts] - 1
        word = batch.word[starts]
        alone = np.ones(starts.size, np.bool_)
        touched = np.logical_or.reduceat(writes, starts)
        if not self.coarse_is_warp:
            alone = np.minimum.reduceat(block, starts) == np.maximum.reduceat(block, starts)
        for kind in _KEPT:
            for past in (self.last[kind, word], self.other[kind, word]):
                at = np.flatnonzero(past)
                if not at.size:
                    continue
                segment, who = (past[at] >> WHO_BITS) - 1, past[at] & _THREAD
                here = first_run[at]
                same = self.ordering.columns[0][segment] == block[runs[here]]
                if not self.coarse_is_warp:
                    alone[at] &= same
                    if kind != WEAK_READ:
                        touched[at] = True
                same &= self.ordering.columns[1][segment] == epoch[runs[here]]
                here, who = here[same], who[same]
                low[here], high[here] = np.minimum(low[here], who), np.maximum(high[here], who)
                if kind != WEAK_READ:
                    written[here] = True
        inside = written & (low != high)
        across = touched & ~alone
        suspects = np.repeat(inside, np.diff(np.append(runs, batch.word.size)))
        if across.any():
            suspects |= np.repeat(across, np.diff(np.append(starts, batch.word.size)))
        return suspects

    def _thread(self, segment: Ints, who: Ints) -> Ints:
        """A number for each thread of the grid."""
        block: Ints = self.ordering.columns[0][segment]
        return block << THREAD_BITS | (who & _THREAD)

    def _conflicts(self, batch: Batch) -> Conflicts | None:
        """Conflicts in a batch sorted by word."""
        opens = changes(batch.word)
        start = np.flatnonzero(opens)[np.cumsum(opens) - 1]
        thread = self._thread(batch.segment, batch.who)
        found: list[Conflicts] = []
        for kind in _KEPT:
            rivals = _IS_RIVAL[kind][batch.kind]
            if not rivals.any():
                continue
            todo = np.flatnonzero(rivals)
            is_open = np.ones(todo.size, np.bool_)  # one conflict an access and class is enough
            for packed, value in self._candidates(batch, kind, todo, start, thread):
                chosen = np.flatnonzero(is_open & (packed != 0))
                if not chosen.size:
                    continue
                rows = todo[chosen]
                segment, who = (packed[chosen] >> WHO_BITS) - 1, packed[chosen] & _WHO
                free = self.ordering.unordered(
                    segment, who & _THREAD, batch.segment[rows], batch.who[rows] & _THREAD
                )
                is_open[chosen[free]] = False
                hits, met = rows[free], value[chosen[free]]
                wrote = batch.kind[hits] <= STRONG_WRITE
                same = (met == batch.value[hits]) & (met != UNKNOWN_VALUE)
                found.append(
                    Conflicts(
                        batch.word[hits], segment[free], who[free], np.full(hits.size, kind != WEAK_READ),
                        batch.segment[hits], batch.who[hits], wrote,
                        same & (kind == WEAK_WRITE) & (batch.kind[hits] == WEAK_WRITE),
                    )
                )  # fmt: skip
        return _joined(found)

    def _candidates(
        self, batch: Batch, kind: int, todo: Ints, start: Ints, thread: Ints
    ) -> list[tuple[Ints, Ints]]:
        """Earlier accesses of one class, packed (0: none), with their values, most recent first."""
        mine = batch.kind == kind
        place = np.flatnonzero(mine)
        out: list[tuple[Ints, Ints]] = []
        if place.size:
            position = np.cumsum(mine) - 1
            packed = (batch.segment[place] + 1) << WHO_BITS | batch.who[place]
            last = position[todo] - mine[todo]
            for chain in (None, thread[place], batch.coarse[place]):
                at = last
                if chain is not None:
                    at = np.where(last >= 0, _previous_run(chain, start[place])[last], -1)
                valid = (at >= 0) & (place[at] >= start[todo])
                out.append((np.where(valid, packed[at], 0), batch.value[place][at]))
        word = batch.word[todo]
        out.append((self.last[kind, word], self.value[word]))
        out.append((self.other[kind, word], np.full(word.size, UNKNOWN_VALUE)))
        return out

    def _remember(self, batch: Batch) -> None:
        """Keep the last accesses of a batch sorted by word, if later ones can race with them."""
        if self.coarse_is_warp:
            lasting = ~self.ordering.passed[batch.segment]
            if not lasting.any():
                return
            batch = batch if lasting.all() else batch.take(lasting)
        group: Ints = np.cumsum(changes(batch.word))
        thread = self._thread(batch.segment, batch.who)
        for kind in _KEPT:
            place = np.flatnonzero(batch.kind == kind)
            if not place.size:
                continue
            groups = group[place]
            ends = np.flatnonzero(np.append(groups[1:] != groups[:-1], True))
            word = batch.word[place[ends]]
            packed = (batch.segment[place] + 1) << WHO_BITS | batch.who[place]
            latest = packed[ends]
            fresh = np.zeros_like(latest)
            for chain in (thread[place], batch.coarse[place]):
                at = _previous_run(chain, groups)[ends]
                fresh = np.where(at >= 0, packed[at], fresh)
            options = [fresh, self.last[kind, word], self.other[kind, word]]
            self.other[kind, word] = self._choose(latest, options)
            self.last[kind, word] = latest
            if kind == WEAK_WRITE:
                self.value[word] = batch.value[place[ends]]

    def _choose(self, latest: Ints, options: list[Ints]) -> Ints:
        """The first option of another warp or block than the latest access, else of another thread."""
        segment, who = (latest >> WHO_BITS) - 1, latest & _WHO
        thread, coarse = self._thread(segment, who), self._coarse(segment, who)
        far, near = np.zeros_like(latest), np.zeros_like(latest)
        for option in reversed(options):
            some = option != 0
            segment, who = np.maximum((option >> WHO_BITS) - 1, 0), option & _WHO
            far = np.where(some & (self._coarse(segment, who) != coarse), option, far)
            near = np.where(some & (self._thread(segment, who) != thread), option, near)
        return np.where(far != 0, far, near)

    def _coarse(self, segment: Ints, who: Ints) -> Ints:
        if self.coarse_is_warp:
            return (who & _THREAD) >> 5
        block: Ints = self.ordering.columns[0, segment]
        return block


def changes(column: Ints) -> npt.NDArray[np.bool_]:
    """Where a value differs from the one before it; the first place counts."""
    out = np.empty(column.size, np.bool_)
    out[:1] = True
    np.not_equal(column[1:], column[:-1], out=out[1:])
    return out


def _before(marks: npt.NDArray[np.bool_]) -> Ints:
    """For each place the nearest earlier marked place, -1 for none."""
    index = np.where(marks, np.arange(marks.size), -1)
    latest = np.maximum.accumulate(index)
    return np.append(-1, latest[:-1])


def _previous_run(chain: Ints, group: Ints) -> Ints:
    """For each item the last item before its run of equal values in `chain`, -1 outside its group."""
    if not chain.size:
        return np.zeros(0, np.int64)
    opens = changes(chain) | changes(group)
    first = np.flatnonzero(opens)[np.cumsum(opens) - 1]
    before = first - 1
    same = group[before] == group
    return np.where((before >= 0) & same, before, -1)


def _joined(parts: list[Conflicts]) -> Conflicts | None:
    parts = [part for part in parts if part.word.size]
    if not parts:
        return None
    return Conflicts(*(np.concatenate([getattr(p, n) for p in parts]) for n in Conflicts.__slots__))
