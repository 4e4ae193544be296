"""Numbers derived from records, compared with plain Python that goes through them step by step."""

from __future__ import annotations

import numpy as np
import pytest

from tests.records.traces import detail, launch_trace, shared_writes, warp_trace
from virtualgpu.records.launch.waves import LaunchWaves
from virtualgpu.records.warp.columns import SharedEvents, expand_lane_masks
from virtualgpu.records.warp.loops import find_loops, find_neighbour_stops, number_calls
from virtualgpu.records.warp.steps import TraceSteps, group_equal_rows

FULL = 0xFFFFFFFF


def test_lane_masks_are_expanded_to_one_flag_per_lane() -> None:
    masks = [0, 1, 0x80000000, FULL, 0x0F0F00F0]
    expected = [[bool(mask >> lane & 1) for lane in range(32)] for mask in masks]
    assert expand_lane_masks(np.array(masks, np.uint32)).tolist() == expected


# Shared memory ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_shared_memory_states_equal_a_bytewise_replay(seed: int) -> None:
    """Stores of 1 to 8 bytes, several rows per moment; uninitialized bytes are shown as 0xFF."""
    random = np.random.default_rng(seed)
    size = int(random.integers(9, 40))
    rows = []
    sequence = 3
    for _ in range(int(random.integers(1, 14))):
        width = int(random.choice([1, 2, 4, 8]))
        lanes = random.choice(32, int(random.integers(0, 4)), replace=False).tolist()
        places = {lane: width * int(random.integers(0, (size + width - 1) // width)) for lane in lanes}
        rows.append(
            (
                sequence,
                width,
                {
                    lane: (offset, int.from_bytes(random.bytes(width), "little"))
                    for lane, offset in sorted(places.items())
                },
            )
        )
        sequence += int(random.choice([0, 1, 5]))
    words = (size + 3) // 4
    moments = sorted({row[0] for row in rows})
    memory: list[int | None] = [None] * (4 * words)
    events: list[list[tuple[int, int, int, int]]] = [[] for _ in range(words)]
    written = [0]
    changed = [0]
    for moment in moments:
        now: set[int] = set()
        for number, (when, width, lanes_written) in enumerate(rows):
            if when != moment:
                continue
            for lane, (offset, bits) in lanes_written.items():
                for half, start in enumerate(range(0, width, 4)):
                    word = offset // 4 + half
                    if word >= words:
                        continue
                    for byte in range(start, min(width, start + 4)):
                        memory[offset + byte] = bits >> 8 * byte & 255
                        now.add(offset + byte)
                    content = [255 if b is None else b for b in memory[4 * word : 4 * word + 4]]
                    events[word].append((int.from_bytes(bytes(content), "little"), number, lane, half))
        written.append(sum(b is not None for b in memory))
        changed.append(len(now))
    result = SharedEvents(shared_writes(size, rows))
    assert result.words == words
    assert result.moments.tolist() == moments
    assert result.written_bytes.tolist() == written
    assert result.changed_bytes.tolist() == changed
    columns = (result.bits, result.row, result.lane, result.second)
    for word in range(words):
        its = slice(result.word_events[word], result.word_events[word + 1])
        assert list(zip(*(column[its].tolist() for column in columns), strict=True)) == events[word]
        assert set(result.word[its].tolist()) <= {word}
    times = np.arange(-1, moments[-1] + 2)
    assert result.count_moments_until(times).tolist() == [
        sum(m <= offset for m in moments) for offset in times
    ]


# Loops --------------------------------------------------------------------------------------------------


def test_nearest_stops_before_and_after_every_step() -> None:
    steps = np.arange(9, dtype=np.int32)
    for stops in ([], [0], [8], [2, 3, 7], [0, 4, 8]):
        after, before = find_neighbour_stops(np.array(stops, np.int32), steps)
        assert after.tolist() == [min((s for s in stops if s > step), default=step) for step in range(9)]
        assert before.tolist() == [max((s for s in stops if s < step), default=step) for step in range(9)]


@pytest.mark.parametrize(
    ("depth", "expected"),
    [
        ([0, 1, 1, 0, 1, 2, 1, 0], [0, 1, 1, 0, 2, 3, 2, 0]),
        ([0, 2, 2, 1, 2, 0], [0, 2, 2, 1, 3, 0]),
        ([1, 0, 1], [1, 0, 2]),
        ([0, 0, 0], [0, 0, 0]),
        ([], []),
    ],
)
def test_steps_of_one_call_share_a_number(depth: list[int], expected: list[int]) -> None:
    assert number_calls(np.array(depth, np.int16)).tolist() == expected


def _nested(inner_turns: list[int]) -> list[int]:
    """0 prologue, 1 outer head, (2 inner head, 3 body) per iteration, 4 outer latch, 5 end."""
    return [0, *(place for turns in inner_turns for place in (1, *([2, 3] * turns), 4)), 5]


def test_nested_loops() -> None:
    places = _nested([3, 1, 2])
    trace = warp_trace(places, detail=detail([0] * len(places), range(6), [(2, 3), (1, 4)]))
    loops = find_loops(trace)
    # Outer iterations: 8 steps from 1, 4 from 9, 6 from 13; the end is at 19. One iteration is not a loop.
    assert len(loops) == 3
    assert loops.run_turns.tolist() == [0, 3, 6, 8]
    assert loops.run_outer.tolist() == [-1, 0, 2]
    assert [list(loops.turns(run)) for run in range(3)] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert loops.turn_begin.tolist() == [1, 9, 13, 2, 4, 6, 14, 16]
    assert loops.turn_end.tolist() == [8, 12, 18, 3, 5, 7, 15, 17]
    assert loops.turn_run.tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
    assert loops.turn.tolist() == [-1, 0, 3, 3, 4, 4, 5, 5, 0, 1, 1, 1, 1, 2, 6, 6, 7, 7, 2, -1]
    assert loops.words == (
        *(f"iteration {n} of 3" for n in (1, 2, 3)),
        *(f"iteration 1 of 3, inside it {n} of 3" for n in (1, 2, 3)),
        *(f"iteration 3 of 3, inside it {n} of 2" for n in (1, 2)),
    )
    assert loops.alone[2] == "iteration 3 of 3\n3/3"
    assert loops.alone[6] == "iteration 1 of 2\n1/2"
    moves = {name: column.tolist() for name, column in loops.moves.items()}
    assert moves["next_iteration"] == [0, 9, 4, 4, 6, 6, 6, 7, 9, 13, 13, 13, 13, 13, 16, 16, 16, 17, 18, 19]
    assert moves["previous_iteration"] == [0, 1, 2, 2, 2, 4, 4, 6, 1, 1, 9, 9, 9, 9, 14, 14, 14, 16, 13, 19]
    assert moves["past_loop"] == [0, 19, *[8] * 6, 19, *[19] * 5, *[18] * 4, 19, 19]


def test_loop_entered_in_the_middle_begins_at_that_step() -> None:
    """If two loops begin at the same step, the outer loop comes first."""
    places = [3, 4, 2, 3, 4, 2, 3, 5, 1, 2, 3, 5, 1]
    loops = find_loops(warp_trace(places, detail=detail([0] * 13, range(6), [(2, 4), (1, 5)])))
    assert loops.run_outer.tolist() == [-1, 0]
    assert loops.turn_begin.tolist() == [0, 12, 0, 5]
    assert loops.turn_end.tolist() == [11, 12, 4, 6]
    assert loops.turn.tolist() == [2, 2, 2, 2, 2, 3, 3, 0, 0, 0, 0, 0, 1]
    assert loops.moves["past_loop"].tolist() == [7] * 7 + [12] * 6


def test_each_call_of_a_function_is_a_separate_loop_run() -> None:
    places = [0, 2, 2, 2, 1, 2, 2, 3]
    loops = find_loops(warp_trace(places, detail=detail([0, 1, 1, 1, 0, 1, 1, 0], range(4), [(2, 2)])))
    assert loops.run_turns.tolist() == [0, 3, 5]
    assert loops.turn_begin.tolist() == loops.turn_end.tolist() == [1, 2, 3, 5, 6]
    # A call in the loop of its caller does not end the caller's loop.
    places = [1, 3, 2, 1, 3, 2, 0]
    loops = find_loops(warp_trace(places, detail=detail([0, 1, 0, 0, 1, 0, 0], range(4), [(1, 2)])))
    assert loops.turn_begin.tolist() == [0, 3]
    assert loops.turn_end.tolist() == [2, 5]


@pytest.mark.parametrize(
    ("truncated", "places", "suffix"),
    [(True, [0, 1, 1], "+"), (False, [0, 1, 1], ""), (True, [0, 1, 1, 2], "")],
)
def test_truncated_loop_is_labelled_as_incomplete(truncated: bool, places: list[int], suffix: str) -> None:
    depth = [0] * len(places)
    loops = find_loops(warp_trace(places, truncated=truncated, detail=detail(depth, range(3), [(1, 1)])))
    assert loops.words == (f"iteration 1 of 2{suffix}", f"iteration 2 of 2{suffix}")
    assert loops.alone[0] == f"iteration 1 of 2{suffix}\n1/2{suffix}"


def test_no_loops_without_loop_data_or_a_second_iteration() -> None:
    bare = [warp_trace([0, 1, 1]), warp_trace([0, 1, 1], detail=detail([0] * 3, range(2), []))]
    bare += [warp_trace([0, 1, 2], detail=detail([0] * 3, range(3), [(1, 2)]))]
    bare += [warp_trace([], detail=detail([], range(3), [(1, 2)]))]
    for trace in bare:
        loops = find_loops(trace)
        steps = list(range(len(trace)))
        assert len(loops) == 0
        assert loops.turn.tolist() == [-1] * len(trace)
        assert all(move.tolist() == steps for move in loops.moves.values())
        assert loops.turn_begin.size == loops.turn_end.size == 0


# Steps --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "warp", "threads"),
    [
        ((32, 1, 1), 0, 32),
        ((40, 1, 1), 1, 8),
        ((5, 5, 2), 1, 18),
        ((16, 1, 1), 0, 16),
        ((64, 1, 1), 0, 32),
        ((32, 1, 1), 1, 0),
        ((32, 1, 1), 2, 0),
    ],
)
def test_partial_warp_counts_only_existing_threads(
    block: tuple[int, int, int], warp: int, threads: int
) -> None:
    assert TraceSteps(warp_trace([0], block=block, warp_index=warp)).threads == threads


def test_accesses_have_minimum_sectors_and_wavefronts() -> None:
    lane = np.arange(32, dtype=np.int64)
    address = np.stack([4 * lane, np.full(32, -1), 64 + 128 * lane, np.zeros(32), 8 * (lane // 3), 16 * lane])
    size = np.array([4, -1, 4, 2, 8, 16], np.int16)
    executed = np.array([FULL, FULL, 0xFF, FULL, 0x00FFFF00, FULL], np.uint32)
    trace = warp_trace(
        range(6),
        executed_mask=executed,
        address=address.astype(np.int64),
        access_size_bytes=size,
        space=("global", "shared"),
        access_space=np.array([0, -1, 1, 0, 1, 0], np.int8),
        access_is_store=np.array([0, 0, 1, 0, 1, 0], bool),
        sectors=np.array([4, 0, 0, 1, 0, 16], np.int32),
        wavefronts=np.array([0, 0, 8, 0, 1, 0], np.int32),
    )
    steps = TraceSteps(trace)
    rows = [0, 2, 3, 4, 5]
    assert steps.accesses.tolist() == rows
    assert steps.space.tolist() == [0, 1, 0, 1, 0]
    assert steps.size_bytes.tolist() == [4, 4, 2, 8, 16]
    assert steps.store.tolist() == [0, 1, 0, 1, 0]
    assert steps.sectors.tolist() == [4, 0, 1, 0, 16]
    assert steps.wavefronts.tolist() == [0, 8, 0, 1, 0]
    count = [
        len(
            {
                a + b
                for n, a in enumerate(address[i].tolist())
                if int(executed[i]) >> n & 1
                for b in range(size[i])
            }
        )
        for i in rows
    ]
    assert steps.ideal_sectors.tolist() == [-(-n // 32) for n in count]
    assert steps.ideal_wavefronts.tolist() == [-(-n // 128) for n in count]
    assert steps.moves["next_access"].tolist() == [2, 2, 3, 4, 5, 5]
    assert steps.moves["previous_access"].tolist() == [0, 0, 0, 2, 3, 4]
    steps = TraceSteps(warp_trace([0, 1], access_space=np.array([0, 0], np.int8)))
    nothing = (steps.size_bytes, steps.sectors, steps.wavefronts, steps.ideal_sectors, steps.ideal_wavefronts)
    assert [column.tolist() for column in nothing] == [[0, 0]] * 5


def test_equal_rows_are_grouped() -> None:
    random = np.random.default_rng(5)
    columns = [random.integers(0, high, 60) for high in (3, 2**31, 4)]
    columns[1] = columns[1][random.integers(0, 2, 60)]
    groups = group_equal_rows(*columns)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    assert [rows[groups.first[kind]] for kind in groups.of] == rows
    assert groups.first.size == len(set(rows)) == len({*groups.of.tolist()})
    assert [rows.index(rows[row]) for row in groups.first] == groups.first.tolist()  # the first of its kind
    masks = group_equal_rows(np.array([FULL, FULL, 1], np.uint32), np.array([FULL, 0, FULL], np.uint32))
    assert sorted(masks.of.tolist()) == [0, 1, 2]
    assert group_equal_rows(np.zeros(0, np.int32)).of.size == 0
    steps = TraceSteps(warp_trace([0, 1, 0, 1], active_mask=np.array([1, 1, 3, 1], np.uint32)))
    assert steps.sites.of.tolist() == [0, 1, 0, 1]
    assert steps.masks.of.tolist() == [0, 0, 1, 0]


# Waves --------------------------------------------------------------------------------------------------

# Two SMs with two slots each, seven blocks: a wave of four and a tail of three. Block 2 is late.
ROWS = [
    (0, 0, 0, 10),
    (1, 1, 0, 20),
    (3, 1, 0, 12),
    (2, 0, 2, 11),
    (4, 0, 10, 30),
    (5, 1, 12, 15),
    (6, 1, 20, 26),
]


def test_waves_and_their_tail() -> None:
    waves = LaunchWaves(launch_trace(ROWS[::-1], (7, 1, 1), 2, 2))
    ordered = [ROWS[::-1][row] for row in waves.order]
    assert ordered == sorted(ROWS, key=lambda row: (row[2], row[0]))
    assert (waves.blocks, waves.full_waves, waves.tail_blocks) == (7, 1, 3)
    assert waves.wave.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert waves.in_tail.tolist() == [False] * 4 + [True] * 3
    # Blocks 4 and 5 take the slots that 0 and 3 leave at the same moment; 6 takes the slot of 1.
    assert waves.slot.tolist() == [0, 0, 1, 1, 0, 1, 0]
    moments, running = waves.running()
    expected = [(t, sum(start <= t < end for _, _, start, end in ROWS)) for t in moments.tolist()]
    assert list(zip(moments.tolist(), running.tolist(), strict=True)) == expected
    assert moments.tolist() == sorted({t for row in ROWS for t in row[2:]})


@pytest.mark.parametrize(
    "rows", [ROWS, [*ROWS, (7, 0, 50, 60), (8, 1, 52, 55)]], ids=["on end", "with a pause"]
)
def test_mean_number_of_blocks_on_busy_sms(rows: list[tuple[int, int, int, int]]) -> None:
    waves = LaunchWaves(launch_trace(rows, (len(rows), 1, 1), 2, 2))
    moments, per_sm = waves.count_running_on_busy()
    for moment, blocks in zip(moments.tolist(), per_sm.tolist(), strict=True):
        sms = [sm for _, sm, start, end in rows if start <= moment < end]
        assert blocks == (len(sms) / len(set(sms)) if sms else 0)


@pytest.mark.parametrize(
    ("grid", "full", "tail"),
    [((8, 1, 1), 2, 0), ((2, 2, 2), 2, 0), ((3, 3, 1), 2, 1), ((3, 1, 1), 0, 3), ((1, 1, 1), 0, 1)],
)
def test_only_a_last_wave_of_several_is_a_tail(grid: tuple[int, int, int], full: int, tail: int) -> None:
    count = grid[0] * grid[1] * grid[2]
    rows = [(n, n % 2, 10 * (n // 4), 10 * (n // 4) + 10) for n in range(count)]
    waves = LaunchWaves(launch_trace(rows, grid, 2, 2))
    assert (waves.blocks, waves.full_waves, waves.tail_blocks) == (count, full, tail)
    assert int(waves.in_tail.sum()) == (tail if full else 0)
    assert waves.trace.waves == count / 4


def test_sampled_blocks_are_weighted_by_the_sampling_rate() -> None:
    rows = [(3 * n, n % 2, 10 * (n // 2), 10 * (n // 2) + 10) for n in range(4)]
    waves = LaunchWaves(launch_trace(rows, (12, 1, 1), 3, 2, sampled=3))
    assert waves.wave.tolist() == [0, 0, 1, 1]
    assert waves.running()[1][:-1] == pytest.approx(np.full(200, 6.0))  # six at once, all the time
    assert waves.count_running_on_busy()[1][:-1] == pytest.approx(np.full(200, 3.0))


def test_launch_without_recorded_blocks_has_no_waves() -> None:
    waves = LaunchWaves(launch_trace([], (5, 1, 1), 2, 0))
    assert (waves.full_waves, waves.tail_blocks) == (0, 0)
    assert (waves.trace.achieved_occupancy, waves.trace.achieved_on_device) == (0, 0)
    assert waves.wave.size == waves.slot.size == waves.in_tail.size == 0
    assert (waves.trace.span_ns, waves.trace.waves) == (0, 0.0)
    crowded = LaunchWaves(launch_trace([(0, 0, 0, 10), (1, 0, 0, 10)], (2, 1, 1), 1, 1))
    assert crowded.trace.achieved_on_device == pytest.approx(4 / 64)  # more than fits according to the model
    assert crowded.slot.tolist() == [0, 1]
    # Wave numbers are limited to the range of their column.
    many = LaunchWaves(launch_trace([(n, 0, n, n + 1) for n in range(3)], (90_000, 1, 1), 1, 1, 40_000))
    assert many.wave.tolist() == [0, 40_000, 65_535]
