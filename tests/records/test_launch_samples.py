"""Launches of very many blocks: what the listed ones say of all, and how busy SMs were."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from virtualgpu.launch.prepare import MAX_LISTED_BLOCKS
from virtualgpu.model.placement import place_blocks
from virtualgpu.records import LaunchTrace, Occupancy, Provenance
from virtualgpu.records.launch.waves import LaunchWaves

MODELLED = Provenance("modelled", "A100", "by hand")
PER_SM = 8
WARPS = 8
MOST_WARPS = 64


def launched(durations: npt.NDArray[np.float64], sm_count: int = 108) -> LaunchTrace:
    sm, start, end = place_blocks(durations, sm_count, PER_SM, 0.6)
    fit = Occupancy(
        provenance=MODELLED,
        block_threads=32 * WARPS,
        registers_per_thread=32,
        shared_bytes=0,
        blocks_per_sm=PER_SM,
        warps_per_sm=PER_SM * WARPS,
        max_warps_per_sm=MOST_WARPS,
        blocks_by_limit={},
        limiters=(),
    )
    start, end = (np.rint(column).astype(np.int64) for column in (start, end))
    return LaunchTrace(
        provenance=MODELLED,
        kernel_name="k",
        grid=(sm.size, 1, 1),
        block=(32 * WARPS, 1, 1),
        shared_bytes=0,
        sm_count=sm_count,
        block_index=np.arange(sm.size),
        sm_id=sm,
        start_ns=start,
        end_ns=end,
        occupancy=fit,
    )


def busy_by_hand(trace: LaunchTrace) -> list[int]:
    """Nanoseconds in which each SM ran a block, computed block by block."""
    total = [0] * trace.sm_count
    until = [-1] * trace.sm_count
    rows = zip(trace.start_ns.tolist(), trace.end_ns.tolist(), trace.sm_id.tolist(), strict=True)
    for start, end, sm in sorted(rows):
        total[sm] += max(0, end - max(start, until[sm]))
        until[sm] = max(until[sm], end)
    return total


KINDS = ("equal", "random", "every second one longer", "one SM in four at first")


@pytest.mark.parametrize(
    ("blocks", "kind"), [(262_144, "random"), *((500_000, kind) for kind in KINDS), (1_953_126, "equal")]
)
def test_sample_covers_every_sm_and_its_busy_time(blocks: int, kind: str) -> None:
    random = np.random.default_rng(blocks)
    durations = np.full(blocks, 1_800.0)
    if kind == "random":
        durations = random.uniform(500, 3_000, blocks)
    elif kind == "every second one longer":
        durations[::2] = 4_000
    elif kind == "one SM in four at first":
        durations[: 8 * 108][np.arange(8 * 108) % 4 == 0] = 3e4
    whole = launched(durations)
    listed = whole.take_sample(MAX_LISTED_BLOCKS)
    assert listed.sm_id.size <= MAX_LISTED_BLOCKS + whole.sm_count
    assert set(listed.sm_id.tolist()) == set(whole.sm_id.tolist())
    assert np.all(np.diff(listed.block_index) > 0)
    rows = listed.block_index
    assert np.array_equal(listed.start_ns, whole.start_ns[rows])
    assert np.array_equal(listed.sm_id, whole.sm_id[rows])

    took = whole.end_ns - whole.start_ns
    true_work = np.bincount(whole.sm_id, took)
    told_work = np.bincount(listed.sm_id, listed.end_ns - listed.start_ns) * listed.sampled
    assert np.abs(told_work / true_work - 1).max() < 0.05
    told_busy = listed.sm_busy_ns / whole.sm_busy_ns
    assert np.abs(told_busy - 1).max() < 0.02
    assert listed.achieved_occupancy == pytest.approx(whole.achieved_occupancy, rel=0.02)
    moments, running = LaunchWaves(listed).running()
    full = LaunchWaves(whole).running()
    middle = (moments[1:] + moments[:-1]) / 2
    truth = full[1][np.searchsorted(full[0], middle, side="right") - 1]
    inside = slice(2, -3)
    assert np.abs(running[:-1][inside] - truth[inside]).mean() < 0.06 * truth.max()


def test_idle_sms_stay_idle_in_a_sample() -> None:
    """Blocks on SMs 3, 7, 11 ... only, with a pause in the middle."""
    number = np.arange(300_000)
    sm = (number % 27 * 4 + 3).astype(np.int32)
    start = number // 27 * 100 + np.where(number >= 150_000, 400_000, 0)
    whole = replace(
        launched(np.zeros(number.size)), block_index=number, sm_id=sm, start_ns=start, end_ns=start + 100
    )
    listed = whole.take_sample(MAX_LISTED_BLOCKS)
    assert set(listed.sm_id.tolist()) == set(range(3, 108, 4))
    assert listed.sm_busy_ns[0] == 0
    stretches = [(s, e) for m, s, e in zip(*listed.busy(), strict=True) if m == 7]
    assert len(stretches) == 2
    assert stretches[1][0] - stretches[0][1] == pytest.approx(400_000, abs=500)


def test_busy_time_counts_concurrent_blocks_once() -> None:
    random = np.random.default_rng(5)
    trace = launched(random.uniform(200, 3_000, 2_000), 12)
    assert trace.sm_busy_ns.tolist() == busy_by_hand(trace)
    gap = trace.take_sample(300)  # with few blocks, busy times are still roughly correct
    assert gap.sm_busy_ns.sum() == pytest.approx(trace.sm_busy_ns.sum(), rel=0.15)


def test_achieved_occupancy_of_four_blocks_on_a_large_device() -> None:
    """The first launch of the course: 4 blocks of 8 warps; an SM of these holds 64."""
    trace = launched(np.full(4, 2_000.0))
    assert trace.occupancy.fraction == 1
    assert trace.achieved_occupancy == pytest.approx(8 / 64)
    assert trace.achieved_on_device == pytest.approx(8 / 64 * 4 / 108, rel=0.01)


def test_achieved_occupancy_is_the_mean_over_time() -> None:
    random = np.random.default_rng(6)
    trace = launched(random.uniform(500, 2_500, 700), 20)
    warps = np.zeros((20, trace.span_ns), np.int32)
    for sm, start, end in zip(trace.sm_id, trace.start_ns, trace.end_ns, strict=True):
        warps[sm, start:end] += WARPS
    assert trace.achieved_occupancy == pytest.approx(warps[warps > 0].mean() / MOST_WARPS, rel=1e-6)
    assert trace.achieved_on_device == pytest.approx(warps.mean() / MOST_WARPS, rel=1e-6)


def test_launch_within_the_limit_is_not_sampled() -> None:
    trace = launched(np.full(1_000, 10.0))
    assert trace.take_sample(1_000) is trace
    assert trace.take_sample(999).sampled == 2
