"""The work distributor against a step-by-step simulation and against conservation laws."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from virtualgpu.model import placement
from virtualgpu.model.placement import MAX_EXACT_BLOCKS, place_blocks

Times = npt.NDArray[np.float64]


def simulate(durations: Times, sm_count: int, blocks_per_sm: int, dispatch_ns: float) -> tuple[Times, Times]:
    """Apply the same rule by a scan over all slots for every block."""
    free = [0.0] * (sm_count * blocks_per_sm)
    starts = []
    ends = []
    earliest = 0.0
    for block, duration in enumerate(durations):
        slot = block if block < len(free) else free.index(min(free))
        start = max(free[slot], earliest)
        earliest = start + dispatch_ns
        free[slot] = start + duration
        starts.append(start)
        ends.append(start + duration)
    return np.array(starts), np.array(ends)


def busiest(sm: npt.NDArray[np.int32], start: Times, end: Times, sm_count: int) -> int:
    """Return the largest number of simultaneous blocks on one SM, within 10 ps."""
    most = 0
    for number in range(sm_count):
        is_on_sm = sm == number
        events = [(t, 1) for t in start[is_on_sm]] + [(t - 0.01, -1) for t in end[is_on_sm]]
        level = 0
        for _, change in sorted(events):
            level += change
            most = max(most, level)
    return most


@pytest.mark.parametrize(
    ("sm_count", "blocks_per_sm", "blocks"), [(4, 2, 50), (3, 1, 7), (10, 8, 500), (5, 2, 3)]
)
def test_block_times_equal_a_step_by_step_simulation(sm_count: int, blocks_per_sm: int, blocks: int) -> None:
    durations = np.random.default_rng(3).uniform(100.0, 900.0, blocks)
    sm, start, end = place_blocks(durations, sm_count, blocks_per_sm, 0.5)
    expected_start, expected_end = simulate(durations, sm_count, blocks_per_sm, 0.5)
    np.testing.assert_allclose(start, expected_start, atol=0.1)  # times are kept in ps
    np.testing.assert_allclose(end, expected_end, atol=0.1)
    assert busiest(sm, start, end, sm_count) <= blocks_per_sm


def test_blocks_of_equal_duration_run_in_full_waves() -> None:
    sm, start, end = place_blocks(np.full(25, 100.0), 5, 2, 0.0)
    assert sm[:10].tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
    assert start.tolist() == [0.0] * 10 + [100.0] * 10 + [200.0] * 5
    assert end.max() == 300.0


def test_short_blocks_wait_for_the_distributor() -> None:
    """They start one dispatch interval apart, however many slots are free."""
    _, start, _ = place_blocks(np.full(10_000, 1.0), 132, 8, 0.6)
    np.testing.assert_allclose(np.diff(np.sort(start)), 0.6, atol=1e-6)


def test_a_long_block_does_not_hold_up_the_others() -> None:
    durations = np.full(40, 10.0)
    durations[0] = 1000.0
    sm, start, end = place_blocks(durations, 2, 1, 0.0)
    assert (sm[1:] == 1).all()
    assert start[-1] == pytest.approx(380.0)
    assert end.max() == 1000.0


def test_the_batched_schedule_is_close_to_the_exact_one() -> None:
    durations = np.random.default_rng(1).uniform(500.0, 3000.0, 40_000)
    slots = 132 * 8
    _, exact = placement._schedule_each_block(durations, slots, 0.6)
    _, batched = placement._schedule_batches(durations, slots, 0.6)
    assert (batched + durations).max() == pytest.approx((exact + durations).max(), rel=0.01)


def test_large_grids_respect_the_capacity_of_each_sm() -> None:
    durations = np.random.default_rng(2).uniform(500.0, 3000.0, MAX_EXACT_BLOCKS + 30_000)
    sm, start, end = place_blocks(durations, 16, 4, 0.6)
    assert busiest(sm, start, end, 16) <= 4
    # No schedule beats all slots busy all the time.
    assert durations.sum() / 64 <= end.max() <= durations.sum() / 64 * 1.01


def test_an_empty_grid_has_no_blocks() -> None:
    sm, start, end = place_blocks(np.empty(0), 4, 2, 0.5)
    assert sm.size == start.size == end.size == 0
