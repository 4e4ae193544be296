"""Accesses as columns, one row a thread, and as batches for a history, one row a thread and granule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virtualgpu.sanitizer.history import THREAD_BITS, UNKNOWN_VALUE, Batch, Ints
from virtualgpu.sanitizer.sites import Site

CODES = {"global": 0, "shared": 1, "local": 2, "generic": 3, "": 4}


@dataclass(slots=True)
class Rows:
    """One row a lane: where it went, what it stored, which instruction, segment and thread it was.

    ``step`` says what becomes of asynchronous copies there (`copies`).
    """

    address: Ints
    value: Ints
    number: Ints
    segment: Ints
    thread: Ints
    step: Ints

    def take(self, rows: npt.NDArray[np.bool_]) -> Rows:
        """Some of the rows."""
        return Rows(*(getattr(self, name)[rows] for name in self.__slots__))


def batch_of(
    rows: Rows, sites: Sequence[Site], unit: int, space: str, offset: Ints, base: Ints | int = 0
) -> tuple[Batch, Ints]:
    """A batch of granules of `unit` bytes at offsets, and its rows' steps of copies.

    Wide accesses touch several granules.
    """
    size = np.array([s.size_bytes for s in sites])[rows.number]
    kind = np.array([s.kind(space) for s in sites])[rows.number]
    reads = np.array([s.reads for s in sites])[rows.number]
    scalar = np.array([s.scalar for s in sites])[rows.number]
    parts = np.maximum(size // unit, 1)
    who = rows.number << THREAD_BITS | rows.thread
    value = np.where(scalar, rows.value, UNKNOWN_VALUE)
    word = offset // unit + base
    if (parts == 1).all():
        return Batch(word, rows.segment, who, rows.segment, kind, reads, value), rows.step
    row = np.repeat(np.arange(parts.size), parts)
    part = np.arange(row.size) - np.repeat(np.cumsum(parts) - parts, parts)
    piece = np.where(scalar[row], value[row] >> (8 * unit * part) & ((1 << 8 * unit) - 1), value[row])
    segment = rows.segment[row]
    return Batch(word[row] + part, segment, who[row], segment, kind[row], reads[row], piece), rows.step[row]


def wholly(found: Batch, sites: Sequence[Site], unit: int) -> Batch | None:
    """Of granules that accesses found unwritten, those of accesses that found nothing else.

    Copying a structure copies the gaps between its members too, which nobody writes.
    """
    parts = np.maximum(np.array([s.size_bytes for s in sites])[found.who >> THREAD_BITS] // unit, 1)
    access = np.stack([found.segment, found.who, found.word - found.word % parts])
    _, which = np.unique(access, axis=1, return_inverse=True)
    which = which.reshape(-1)
    granules = np.unique(np.stack([which, found.word]), axis=1)[0]
    keep = np.bincount(granules)[which] == parts
    return found.take(keep) if keep.any() else None
