"""What is known of memory at every step of a trace: from what the traced block did, before and after."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.records import WARP_SIZE, WarpTrace
from virtualgpu.records.warp.columns import lanes_of

Ints = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]

# Addresses of all spaces are kept apart by a tag in their high bits; local ones hold their lane, too.
TAG_SHIFT = 56
LANE_SHIFT = 48
SHARED, LOCAL, PARAMETER = (tag << TAG_SHIFT for tag in (1, 2, 3))
_SPACE_TAGS = {"shared": SHARED, "local": LOCAL}
_LANES = np.arange(WARP_SIZE, dtype=np.int64)
_WORD = re.compile(r"(?:@!?%\w+\s+)?(\w+)([.\w:]*)")


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes of device memory as they were before the launch, and as they are behind it."""

    start: int
    before: npt.NDArray[np.uint8]
    after: npt.NDArray[np.uint8]


def addresses_of(trace: WarpTrace, steps: npt.NDArray[np.integer[Any]]) -> Ints:
    """The addresses of some accesses, -1 where a lane takes no part, with the tags of their spaces."""
    assert trace.address is not None
    assert trace.access_space is not None
    tags = np.array([_SPACE_TAGS.get(name, 0) for name in trace.space], np.int64)
    tag = tags[trace.access_space[steps]][:, None]
    address = trace.address[steps]
    return np.where(address >= 0, (address | tag) + _lane_part(tag), -1)


def _lane_part(address: Ints) -> Ints:
    return np.where(address >> TAG_SHIFT == LOCAL >> TAG_SHIFT, _LANES << LANE_SHIFT, 0)


def tagged(pointer: npt.NDArray[np.uint64]) -> Ints:
    """Generic pointers, of a row of lanes, as addresses."""
    address = pointer.astype(np.int64)
    return np.asarray(address + _lane_part(address))


def pointer_of(place: Ints) -> npt.NDArray[np.uint64]:
    """Addresses as the generic pointers that lanes would have."""
    local = place >> TAG_SHIFT == LOCAL >> TAG_SHIFT
    return np.where(local, place & ~np.int64(255 << LANE_SHIFT), place).astype(np.uint64)


# A byte is seen as it is stored (what was there before?), loaded, or changed by an atomic.
_STORE, _LOAD, _ATOMIC = range(3)


@dataclass(frozen=True, slots=True)
class _Events:
    """Bytes that were written, or seen by a load, in the order of time."""

    address: Ints
    byte: npt.NDArray[np.uint8]
    at: Ints
    what: npt.NDArray[np.int8]


def _spread(address: Ints, bits: Bits, width: Ints, at: Ints, what: Ints) -> Iterable[_Events]:
    for byte in range(int(width.max(initial=0))):
        has = width > byte
        part = (bits[has] >> np.uint64(8 * byte)).astype(np.uint8)
        yield _Events(address[has] + byte, part, at[has], what[has].astype(np.int8))


def _of_global(trace: WarpTrace) -> Iterable[_Events]:
    """What a warp stored to memory other than shared, and what it loaded from there."""
    detail = trace.detail
    if detail is None or trace.address is None or trace.access_space is None or trace.value is None:
        return
    roots = [_WORD.match(text.strip()) for text in trace.instruction]
    words = [(found[1], found[2]) if found else ("", "") for found in roots]
    not_shared = np.array([name != "shared" for name in (*trace.space, "")], np.bool_)[trace.access_space]
    stores = np.array([root in ("st", "atom", "red") for root, _ in words], np.bool_)[trace.text_index]
    what = np.array([_STORE if root == "st" else _ATOMIC for root, _ in words], np.int64)[trace.text_index]
    plain = [root == "ld" and not re.search(r"\.v\d", rest) for root, rest in words]
    kept = (stores & not_shared & (trace.access_space >= 0))[detail.stored_step]
    step = detail.stored_step[kept]
    width = detail.stored_width_bytes[kept].astype(np.int64)
    first = detail.stored_part[kept] == 0
    ends = np.cumsum(width)
    start = np.repeat((ends - width)[first], np.diff(np.append(np.flatnonzero(first), width.size)))
    places = addresses_of(trace, step)
    row, lane = np.nonzero(lanes_of(trace.executed_mask[step]) & (places >= 0))
    yield from _spread(
        places[row, lane] + (ends - width - start)[row],
        detail.stored_value[kept][row, lane],
        width[row],
        detail.sequence[step][row],
        what[step][row],
    )
    loads = np.flatnonzero(
        np.array(plain, np.bool_)[trace.text_index] & not_shared & (trace.access_space >= 0)
    )
    places = addresses_of(trace, loads)
    row, lane = np.nonzero(lanes_of(trace.executed_mask[loads]) & (places >= 0))
    size = np.zeros(loads.size) if trace.access_size_bytes is None else trace.access_size_bytes[loads]
    yield from _spread(
        places[row, lane],
        trace.value[loads][row, lane],
        size.astype(np.int64)[row],
        detail.sequence[loads][row],
        np.full(row.size, _LOAD),
    )


def _of_shared(trace: WarpTrace) -> Iterable[_Events]:
    """What all warps of the block stored to shared memory."""
    if trace.detail is None:
        return
    shared = trace.detail.shared
    row, lane = np.nonzero(lanes_of(shared.mask))
    yield from _spread(
        shared.offset[row, lane].astype(np.int64) | SHARED,
        shared.value[row, lane],
        shared.width_bytes[row].astype(np.int64),
        shared.sequence[row],
        np.full(row.size, _STORE),
    )


class Memory:
    """Bytes at every step, as far as the trace tells.

    A byte is what the block wrote or read there last. Where what it finds next, or what is there at the end,
    is another value, somebody else has written meanwhile, and nobody knows when: then it is known at the
    accesses themselves only. Where the block itself stores next, nobody else is taken to have written before;
    what atomics add to is others', too, unless all that runs is traced.

    Parameters
    ----------
    traces
        The traced warps of one block.
    regions
        Device memory before and after the launch, sorted, and the parameters.
    """

    def __init__(self, traces: tuple[WarpTrace, ...], regions: list[Region]) -> None:
        parts = [*_of_shared(traces[0])] if traces else []
        parts += [events for trace in traces for events in _of_global(trace)]
        self._truncated = any(trace.truncated for trace in traces)
        address = np.concatenate([np.zeros(0, np.int64), *(part.address for part in parts)])
        byte = np.concatenate([np.zeros(0, np.uint8), *(part.byte for part in parts)])
        at = np.concatenate([np.zeros(0, np.int64), *(part.at for part in parts)])
        what = np.concatenate([np.zeros(0, np.int8), *(part.what for part in parts)])
        order = np.lexsort((np.arange(at.size), at, address))
        self._address = address[order]
        self._byte = byte[order]
        self._at = at[order]
        what = what[order]
        self._known, first = np.unique(self._address, return_index=True)
        self._key = (np.searchsorted(self._known, self._address) << np.int64(41)) + self._at
        self._starts = np.array([region.start for region in regions], np.int64)
        self._ends = np.array([region.start + region.before.size for region in regions], np.int64)
        self._regions = regions
        self.moments = np.unique(self._at)
        before, after, there = self._kept(self._known)
        # Whether each event's byte stays until the next: the next is a store of the block's own, or finds it.
        last = np.append(first[1:], self._at.size) - 1
        finds = np.roll(self._byte, -1) == self._byte
        then = np.roll(what, -1)
        alone = (
            bool(traces) and len(traces) * WARP_SIZE >= prod(traces[0].block) and prod(traces[0].grid) == 1
        )
        self._stays = (then == _STORE) | ((then == _LOAD) & finds) | ((then == _ATOMIC) & alone)
        last = last[: first.size]  # none of nothing
        self._stays[last] = ~there | (after == self._byte[last]) | self._truncated
        found = before == self._byte[first]
        self._stays_at_first = there & np.where(what[first] == _LOAD, found, (what[first] == _STORE) | alone)

    def _kept(
        self, address: Ints
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
        """Bytes before and after the launch, and whether they were kept."""
        before, after = np.zeros((2, address.size), np.uint8)
        which = np.searchsorted(self._starts, address, side="right") - 1
        there = (which >= 0) & (address < self._ends[which] if self._ends.size else False)
        for number in np.flatnonzero(np.bincount(which[there])).tolist():
            here = np.flatnonzero(there & (which == number))
            region = self._regions[number]
            before[here] = region.before[address[here] - region.start]
            after[here] = region.after[address[here] - region.start]
        return before, after, there

    def allocated(self, address: Ints) -> npt.NDArray[np.bool_]:
        """Whether addresses lie in memory that somebody asked for."""
        which = np.searchsorted(self._starts, address, side="right") - 1
        return np.asarray((which >= 0) & (address < self._ends[which] if self._ends.size else False))

    def _bytes(self, address: Ints, at: Ints) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
        place = np.searchsorted(self._known, address)
        mine = place < self._known.size
        mine[mine] = self._known[place[mine]] == address[mine]
        event = np.searchsorted(self._key, (place << np.int64(41)) + at, side="right") - 1
        own = mine & (event >= 0)
        own[own] = self._address[event[own]] == address[own]
        value, after, there = self._kept(address)
        known = there & ((value == after) | self._truncated)
        first = mine & ~own
        known[first] = self._stays_at_first[place[first]]
        value[own] = self._byte[event[own]]
        known[own] = self._stays[event[own]] | (self._at[event[own]] == at[own])
        return value, known

    def read(
        self, address: Ints, size_bytes: int, sequence: Ints, wanted: npt.NDArray[np.bool_]
    ) -> tuple[Bits, npt.NDArray[np.bool_]]:
        """The bits at addresses ``[step, 32]`` after steps with these places in the block's order.

        Returns
        -------
        bits, known
            For each lane; nothing is known where it is not `wanted`.
        """
        steps = sequence.size
        wanted = np.broadcast_to(wanted, (steps, WARP_SIZE))
        address = np.broadcast_to(address, (steps, WARP_SIZE))
        # Most steps change neither an address nor memory: each such run is looked up once, at its begin; an
        # access itself is a moment, and so is what follows it.
        moment = np.searchsorted(self.moments, sequence, side="right")
        exact = np.isin(sequence, self.moments) & (not self._stays.all())
        new = np.ones(steps, np.bool_)
        new[1:] = (
            (moment[1:] != moment[:-1])
            | exact[1:]
            | exact[:-1]
            | (address[1:] != address[:-1]).any(axis=1)
            | (wanted[1:] != wanted[:-1]).any(axis=1)
        )
        rows = np.flatnonzero(new)
        of = np.cumsum(new) - 1
        row, lane = np.nonzero(wanted[rows])
        bits = np.zeros((rows.size, WARP_SIZE), np.uint64)
        known = np.zeros((rows.size, WARP_SIZE), np.bool_)
        known[row, lane] = True
        for byte in range(size_bytes):
            value, sure = self._bytes(address[rows[row], lane] + byte, sequence[rows[row]])
            bits[row, lane] |= value.astype(np.uint64) << np.uint64(8 * byte)
            known[row, lane] &= sure
        return bits[of], known[of]
