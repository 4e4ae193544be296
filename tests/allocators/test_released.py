"""Released segments, found from their total bytes, against a pool whose steps are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpulab.allocators.released import name_released_segments
from tests.allocators.traces import MIB, random_rows, trace_of
from virtualgpu.records.memory import ACTIONS, Block, Segment

FREED = ACTIONS.index("segment_free")


@pytest.mark.parametrize("seed", range(4))
def test_released_segments_are_identified_by_their_sizes(seed: int) -> None:
    whole = trace_of(random_rows(seed, 2000, waits=False))
    event_rows = list(whole.events.rows())
    # As a recorder sees them: what goes at a time is one number of bytes.
    rows = []
    expected = []
    for index, (action, address, size, requested, stream, _, stack) in enumerate(event_rows):
        if action == "segment_free":
            if index and event_rows[index - 1][0] == "segment_free":
                rows[-1] = ("segment_free", 0, rows[-1][2] + size, 0, 0, -1)
            else:
                rows.append(("segment_free", 0, size, 0, 0, -1))
        else:
            rows.append((action, address, size, requested, stream, stack))
        expected.append((action, address, size))
    events, unnamed = name_released_segments(whole.first, trace_of(rows).events)
    assert unnamed == 0

    def runs(listed: list[tuple[str, int, int]]) -> list[object]:
        """Replace consecutive released segments by a set."""
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
    assert runs([row[:3] for row in events.rows()]) == runs(expected)


def test_released_bytes_that_match_no_segments_are_counted() -> None:
    base = 1 << 30
    rows = [
        ("segment_alloc", base, 2 * MIB, 0, 0, -1),
        ("segment_alloc", 2 * base, 6 * MIB, 0, 7, -1),
        ("alloc", 3 * base, MIB, MIB, 0, -1),
    ]
    released_row = ("segment_free", 0, 6 * MIB, 0, 0, -1)
    events, unnamed = name_released_segments(trace_of([]).first, trace_of([*rows, released_row]).events)
    assert list(events.rows())[-1][:5] == ("segment_free", 2 * base, 6 * MIB, 0, 7)
    assert unnamed == 0
    events, unnamed = name_released_segments(
        trace_of([]).first, trace_of([*rows, ("segment_free", 0, MIB, 0, 0, -1)]).events
    )
    assert (len(events), unnamed) == (3, MIB)


@pytest.mark.parametrize(
    ("streams", "indices", "is_known"),
    [
        (10, [3, 8], True),
        (10, [*range(9)], True),
        (11, [3, 8], False),
        (11, [10], True),
        (11, [*range(11)], True),
    ],
)
def test_segments_of_up_to_ten_streams_can_be_combined(
    streams: int, indices: list[int], is_known: bool
) -> None:
    base = 1 << 30
    rows = [("segment_alloc", base * (n + 1), 2 * MIB << n, 0, n, -1) for n in range(streams)]
    size = sum(2 * MIB << n for n in indices)
    events, unnamed = name_released_segments(
        trace_of([]).first, trace_of([*rows, ("segment_free", 0, size, 0, 0, -1)]).events
    )
    assert unnamed == (0 if is_known else size)
    freed = [
        (address, stream) for action, address, _, _, stream, *_ in events.rows() if action == "segment_free"
    ]
    assert freed == ([(base * (n + 1), n) for n in indices] if is_known else [])


def test_naming_released_segments_keeps_other_events() -> None:
    base = 1 << 30
    first = replace(
        trace_of([]).first,
        segments=(
            Segment(base, 2 * MIB, 3, (Block(address=base, size_bytes=2 * MIB, is_free=False),)),
            Segment(4 * base, 2 * MIB, 3, (Block(address=4 * base, size_bytes=2 * MIB, is_free=True),)),
        ),
    )
    rows = [
        ("segment_free", 0, 2 * MIB, 0, 0, 5),
        ("free_completed", base, 2 * MIB, 9, 3, 6),
        ("segment_free", 0, 2 * MIB, 0, 0, 7),
    ]
    events, unnamed = name_released_segments(first, trace_of(rows).events)
    assert unnamed == 0
    assert list(events.rows()) == [
        ("segment_free", 4 * base, 2 * MIB, 0, 3, 0, 5),
        ("free_completed", base, 2 * MIB, 9, 3, 1000, 6),
        ("segment_free", base, 2 * MIB, 0, 3, 2000, 7),
    ]


def test_a_larger_segment_at_a_released_address_is_identified() -> None:
    base = 1 << 30
    rows = [
        ("segment_alloc", base + 4 * MIB, 2 * MIB, 0, 0, -1),
        ("segment_free", 0, 2 * MIB, 0, 0, -1),
        ("segment_alloc", base, 8 * MIB, 0, 0, -1),
        ("alloc", base + 5 * MIB, MIB, MIB, 0, -1),
        ("segment_alloc", 2 * base, 6 * MIB, 0, 0, -1),
    ]
    freed = [("free_completed", base + 5 * MIB, MIB, 0, 0, -1), ("segment_free", 0, 14 * MIB, 0, 0, -1)]
    _, unnamed = name_released_segments(trace_of([]).first, trace_of([*rows, freed[1]]).events)
    assert unnamed == 14 * MIB, "a block is in use in one of them"
    events, unnamed = name_released_segments(trace_of([]).first, trace_of([*rows, *freed]).events)
    assert unnamed == 0
    assert [row[:3] for row in events.rows()][-2:] == [
        ("segment_free", base, 8 * MIB),
        ("segment_free", 2 * base, 6 * MIB),
    ]
