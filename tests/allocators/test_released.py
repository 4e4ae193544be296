"""Segments given back, found from bytes alone: against a pool whose every step is known."""

from __future__ import annotations

import numpy as np
import pytest

from tests.allocators.traces import MIB, random_rows, trace_of
from virtualgpu.allocators.released import named
from virtualgpu.records.memory import ACTIONS

FREED = ACTIONS.index("segment_free")


@pytest.mark.parametrize("seed", range(4))
def test_the_segments_that_went_are_found_from_their_bytes(seed: int) -> None:
    whole = trace_of(random_rows(seed, 2000, waits=False))
    told = list(whole.events.rows())
    # As a recorder sees them: what goes at a time is one number of bytes.
    rows, kept = [], []
    for at, (action, address, size, asked, stream, _, stack) in enumerate(told):
        if action == "segment_free":
            if at and told[at - 1][0] == "segment_free":
                rows[-1] = ("segment_free", 0, rows[-1][2] + size, 0, 0, -1)
            else:
                rows.append(("segment_free", 0, size, 0, 0, -1))
        else:
            rows.append((action, address, size, asked, stream, stack))
        kept.append((action, address, size))
    found, unnamed = named(whole.first, trace_of(rows).events)
    assert unnamed == 0

    def runs(listed: list[tuple[str, int, int]]) -> list[object]:
        """Segments that go at a time are a set."""
        out: list[object] = []
        for action, address, size in listed:
            if action == "segment_free":
                if not (out and isinstance(out[-1], set)):
                    out.append(set())
                out[-1].add((address, size))  # type: ignore[attr-defined]
            else:
                out.append((action, address, size))
        return out

    assert np.count_nonzero(whole.events.actions == FREED) > 3
    assert runs([row[:3] for row in found.rows()]) == runs(kept)


def test_one_streams_segments_and_what_nobody_can_explain() -> None:
    base = 1 << 30
    rows = [("segment_alloc", base, 2 * MIB, 0, 0, -1), ("segment_alloc", 2 * base, 6 * MIB, 0, 7, -1),
            ("alloc", 3 * base, MIB, MIB, 0, -1)]  # fmt: skip
    gone = ("segment_free", 0, 6 * MIB, 0, 0, -1)
    found, unnamed = named(trace_of([]).first, trace_of([*rows, gone]).events)
    assert list(found.rows())[-1][:5] == ("segment_free", 2 * base, 6 * MIB, 0, 7)
    assert unnamed == 0
    found, unnamed = named(trace_of([]).first, trace_of([*rows, replace_size(gone, MIB)]).events)
    assert (len(found), unnamed) == (3, MIB)


def test_a_segment_that_went_does_not_hide_a_larger_one_in_its_place() -> None:
    base = 1 << 30
    rows = [("segment_alloc", base + 4 * MIB, 2 * MIB, 0, 0, -1), ("segment_free", 0, 2 * MIB, 0, 0, -1),
            ("segment_alloc", base, 8 * MIB, 0, 0, -1), ("alloc", base + 5 * MIB, MIB, MIB, 0, -1),
            ("segment_alloc", 2 * base, 6 * MIB, 0, 0, -1)]  # fmt: skip
    freed = [("free_completed", base + 5 * MIB, MIB, 0, 0, -1), ("segment_free", 0, 14 * MIB, 0, 0, -1)]
    _, unnamed = named(trace_of([]).first, trace_of([*rows, freed[1]]).events)
    assert unnamed == 14 * MIB, "a block is in use in one of them"
    found, unnamed = named(trace_of([]).first, trace_of([*rows, *freed]).events)
    assert unnamed == 0
    assert [row[:3] for row in found.rows()][-2:] == [
        ("segment_free", base, 8 * MIB), ("segment_free", 2 * base, 6 * MIB),
    ]  # fmt: skip


def replace_size(row: tuple[str, int, int, int, int, int], size: int) -> tuple[str, int, int, int, int, int]:
    return row[0], row[1], size, *row[3:]
