"""Memory maps: texts, positions of segments, and the static picture."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import traitlets

from gpulab.allocators import steps
from gpulab.views.allocator.columns import make_contents
from gpulab.views.allocator.layout import compute_layouts
from gpulab.views.allocator.maps import PoolMaps
from gpulab.views.allocator.pool_text import find_owner
from gpulab.views.allocator.view import AllocatorView
from tests.allocators.traces import MIB, trace_of
from tests.views import pools
from virtualgpu.records.memory import ACTIONS, Block, Frame, Segment

BASE = 1 << 40


@pytest.fixture
def refused() -> Iterator[AllocatorView]:
    """Return a view: 8 MiB are refused, 6 and 4 MiB are free, and another stream has 20 MiB free."""
    rows = [
        ("segment_alloc", BASE, 16 * MIB, 0, 0, -1),
        ("alloc", BASE, 6 * MIB, 6 * MIB - 100, 0, 1),
        ("alloc", BASE + 6 * MIB, 6 * MIB, 6 * MIB, 0, 2),
        ("free_requested", BASE, 6 * MIB, 0, 0, -1),
        ("free_completed", BASE, 6 * MIB, 0, 0, -1),
        ("segment_alloc", 2 * BASE, 20 * MIB, 0, 9, -1),
        ("oom", 3 * MIB, 8 * MIB, 8 * MIB, 0, 3),
    ]
    view = AllocatorView(PoolMaps([pools.panel(trace_of(rows, limit_bytes=40 * MIB))]))
    yield view
    view.close()


def test_the_map_opens_at_the_refused_request_and_explains_it(refused: AllocatorView) -> None:
    assert refused.step == 7
    message = refused.maps.describe_status(refused.panels[0], 7)
    assert "8 MiB refused: this stream's largest piece is 6 MiB (another's 20 MiB)" in message
    assert "8 MiB refused, stream 0, train.py:31" in refused.maps.describe_position(7)
    text = refused.describe()
    assert "Emptying the cache would return 20 MiB to the device; 10 MiB would remain" in text
    assert "Refused above: 24 MiB" in text


def test_steps_are_clamped_and_unknown_colourings_refused(refused: AllocatorView) -> None:
    refused.step = 99
    assert refused.step == 7
    refused.step = -3
    assert refused.step == 0
    with pytest.raises(traitlets.TraitError, match="line, stream, age"):
        refused.colour_by = "owner"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("most", [4, 12])
def test_live_segments_never_share_a_position(seed: int, most: int) -> None:
    draw = random.Random(seed)
    alive = {}
    segments = []
    for index in range(1000):
        if alive and draw.random() < 0.45:
            address = draw.choice(list(alive))
            size, stream = alive.pop(address)
            segments.append(("segment_free", address, size, 0, stream, -1))
        elif len(alive) < 40:
            size = draw.choice((1, 2, 3, 10, 45)) * MIB + 512 * draw.randint(0, 99)
            stream = draw.randint(0, 1)
            alive[BASE + index * 64 * MIB] = size, stream
            segments.append(("segment_alloc", BASE + index * 64 * MIB, size, 0, stream, -1))
    lives = steps.make_history(trace_of(segments))
    (layout,) = compute_layouts([lives], most)
    assert layout.rows <= most
    rows = [set(range(g.first_row, g.first_row + g.rows)) for g in layout.groups]
    assert sum(map(len, rows)) == len(set().union(*rows)), "groups have rows of their own"
    keys = [(g.stream, g.pool) for g in layout.groups]
    for step in range(0, len(segments) + 1, 7):
        now = np.flatnonzero((lives.ranges.begins <= step) & (step < lives.ranges.ends))
        ends = []
        for number in lives.ranges.segments[now].tolist():
            start = layout.start_bytes[number]
            end = layout.start_bytes[number] + layout.drawn_bytes[number]
            ends.append((start, end))
            group = layout.groups[keys.index((lives.segments.streams[number], lives.segments.pools[number]))]
            assert group.first_row <= start // layout.row_bytes
            assert end <= (group.first_row + group.rows) * layout.row_bytes + 1
            assert layout.drawn_bytes[number] >= layout.size_bytes[number]
        ends.sort()
        assert all(first[1] <= two[0] + 1e-6 for first, two in pairwise(ends))


def test_two_pools_share_their_scale_and_step_by_requests() -> None:
    view = pools.two()
    assert view.maps.layouts[0].row_bytes == view.maps.layouts[1].row_bytes
    assert view.maps.last_position == len(view.maps.requests)
    assert [panel.find_step(view.maps.last_position) for panel in view.panels] == [
        p.history.last_step for p in view.panels
    ]
    assert repr(view).startswith("Memory map of CuPy's pool and PyTorch's caching allocator, modelled on")
    assert len(view.record) == 2
    view.close()


def test_many_streams_share_the_last_rows() -> None:
    rows = [
        ("segment_alloc", BASE + index * 32 * MIB, (1 + index) * MIB, 0, index, -1) for index in range(20)
    ]
    (layout,) = compute_layouts([steps.make_history(trace_of(rows))], 12)
    assert [group.stream for group in layout.groups] == [16, 17, 18, 19, -1], "those with the most memory"
    assert layout.rows <= 12
    (sparse,) = compute_layouts([steps.make_history(trace_of(rows[:5]))], 12)
    assert [group.stream for group in sparse.groups] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("seed", range(5))
def test_a_damaged_trace_is_still_drawn(seed: int) -> None:
    """The trace contains empty sizes, overlaps and frees of unknown blocks."""
    draw = random.Random(seed)
    addresses = (0, 512, 513, 4096, 1 << 20, (1 << 47) - 512)
    sizes = (0, 1, 512, 4096, 1 << 20, 1 << 40, -512)
    rows = [
        (draw.choice(ACTIONS), draw.choice(addresses), draw.choice(sizes), 5, draw.choice((0, 7)), -1)
        for _ in range(60)
    ]
    trace = trace_of(rows, allocator=draw.choice(("PyTorch's caching allocator", "CuPy's pool")))
    view = AllocatorView(PoolMaps([pools.panel(steps.keep_last_events(trace, 30))]))
    assert len(view.png()) > 1000
    assert view.describe()
    view.close()


def test_a_free_position_is_kept_for_a_segment_of_similar_size() -> None:
    """A 2 MiB segment does not take the free position of 20 MiB, but the next one of 18 MiB does."""
    sizes = {1: 20 * MIB, 2: 2 * MIB, 3: 18 * MIB}
    rows = [
        ("segment_alloc", BASE, sizes[1], 0, 0, -1),
        ("segment_free", BASE, sizes[1], 0, 0, -1),
        ("segment_alloc", 2 * BASE, sizes[2], 0, 0, -1),
        ("segment_alloc", 3 * BASE, sizes[3], 0, 0, -1),
    ]
    (layout,) = compute_layouts([steps.make_history(trace_of(rows))])
    start = dict(zip((layout.low_addresses // BASE).tolist(), layout.start_bytes.tolist(), strict=True))
    assert start[1] == start[3]
    assert start[2] >= 20 * MIB


def test_a_crowded_map_uses_more_rows_up_to_the_limit() -> None:
    """Five streams have one row each with few blocks, and ten rows in total with eighty blocks."""
    rows = [("segment_alloc", BASE * (1 + index), 80 * MIB, 0, index, -1) for index in range(5)]
    (sparse,) = compute_layouts([steps.make_history(trace_of(rows))], 12)
    rows += [("alloc", BASE + index * MIB, MIB, MIB, 0, -1) for index in range(80)]
    (many,) = compute_layouts([steps.make_history(trace_of(rows))], 12)
    assert (sparse.rows, many.rows) == (5, 10)
    second_trace = trace_of([("segment_alloc", BASE * (9 + index), 80 * MIB, 0, 0, -1) for index in range(2)])
    assert PoolMaps([pools.panel(trace_of(rows))]).layouts[0].rows == 10
    two = PoolMaps([pools.panel(trace_of(rows)), pools.panel(second_trace)])
    assert [layout_.rows for layout_ in two.layouts] == [10, 4], "two maps have fourteen rows"


@pytest.mark.parametrize(
    ("files", "owner"),
    [
        (["/srv/me/my.code/train.py", "/srv/me/run.py"], "train.py:1"),
        ([r"C:\Users\me\net.py"], "net.py:1"),
        (["/env/site-packages/cupy/x.py", "/env/torch/nn/y.py", "a/loss.py"], "loss.py:3"),
        (["??", "/env/dist-packages/z.py"], "??:1"),
        ([], ""),
    ],
)
def test_a_block_is_attributed_to_the_innermost_user_line(files: list[str], owner: str) -> None:
    stack = tuple(Frame(name, index, "f") for index, name in enumerate(files, 1))
    assert find_owner(stack) == owner


def test_a_stream_with_only_a_refused_request_is_named() -> None:
    rows = [("segment_alloc", BASE, 2 * MIB, 0, 0, -1), ("oom", 0, 8 * MIB, 8 * MIB, 5, -1)]
    maps = PoolMaps([pools.panel(trace_of(rows))])
    assert "refused, stream" in maps.describe_position(2)


def test_blocks_from_before_the_trace_keep_their_labels() -> None:
    blocks = tuple(
        Block(
            address=BASE + index * MIB,
            size_bytes=MIB,
            is_free=False,
            requested_bytes=MIB,
            label=f"array {index % 2}",
        )
        for index in range(3)
    )
    segments = (
        Segment(BASE, 4 * MIB, 0, (*blocks, Block(address=BASE + 3 * MIB, size_bytes=MIB, is_free=True))),
    )
    rows = [("alloc", BASE + 3 * MIB, MIB, MIB, 0, 1)]
    first = replace(trace_of([]).first, segments=segments)
    panel = make_contents(PoolMaps([pools.panel(trace_of(rows, first))]), "")["panels"][0]
    names = [panel["labels"][index] if index >= 0 else "" for index in panel["block"]["label"].tolist()]
    assert names == ["array 0", "array 1", "array 0", ""]
