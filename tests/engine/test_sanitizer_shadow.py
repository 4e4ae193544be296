"""Findings of the compiled checks, one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.engine.checker_run import (
    ACQUIRE_G,
    ATOM_G,
    ATOM_S,
    BAR,
    BAR_1,
    BAR_IF,
    BAR_LOOSE,
    COPY_S,
    FULL,
    LOAD_A,
    LOAD_G,
    LOAD_G4,
    LOAD_L,
    LOAD_L2,
    LOAD_S,
    LOAD_S2,
    RELEASE_G,
    SHUFFLE,
    STORE_A,
    STORE_G,
    STORE_G2,
    STORE_L,
    STORE_S,
    STORE_S4,
    STRONG_G,
    STRONG_S,
    Run,
)
from virtualgpu.engine.ir import layout
from virtualgpu.model.memory import DeviceMemory
from virtualgpu.sanitizer import structures


def run_steps(*steps: tuple[Any, ...], **options: Any) -> Run:
    """Accesses (block, site, thread, word) and waits (block, "barrier")."""
    run = Run(**({"checks_unwritten": False} | options))
    for block, step, *operands in steps:
        if step == "barrier":
            run.barrier(block)
        elif step == "fence":
            run.tell(block, operands[0] // 32, layout.FENCE, None, 1 << operands[0] % 32)
        elif step == "block fence":
            run.tell(block, operands[0] // 32, layout.BLOCK_FENCE, None, 1 << operands[0] % 32)
        elif step == "sync":
            lanes = list(operands)
            mask = sum(1 << lane % 32 for lane in lanes)
            run.tell(block, lanes[0] // 32, layout.WARP_SYNC, [mask] * 32, mask)
        elif step == "named":
            warps = np.zeros((run.warps, 32), bool)
            warps.reshape(-1)[operands] = True
            run.checker.barrier(block, warps, False, 1)
        else:
            thread, word = operands
            shared = step in (LOAD_S, STORE_S, ATOM_S, STRONG_S, LOAD_S2, STORE_S4, COPY_S)
            run.access(block, step, {thread: 4 * word + (0 if shared else run.starts[0])})
    return run


def pairs(*steps: tuple[Any, ...], **options: Any) -> list[tuple[int, int, int]]:
    """Threads of the races found, and their relation."""
    return [(race[2][1], race[3][1], race[5]) for race in run_steps(*steps, **options).races()]


READ = (0, LOAD_S, 9, 5)


def test_syncwarp_orders_lanes_with_matching_masks() -> None:
    run = Run(checks_unwritten=False)
    run.access(0, STORE_S, {3: 0, 5: 4})
    members = [0] * 32
    members[3] = members[9] = 1 << 3 | 1 << 9
    members[5] = members[8] = 1 << 5 | 1 << 8 | 1 << 20  # of which one is not there
    run.tell(0, 0, layout.WARP_SYNC, members, 1 << 3 | 1 << 5 | 1 << 8 | 1 << 9)
    run.access(0, LOAD_S, {9: 0})
    run.access(0, LOAD_S, {8: 4})
    assert run.races() == []
    run.access(0, LOAD_S, {8: 0})
    run.access(0, LOAD_S, {9: 4})
    assert [(race[2][1], race[3][1]) for race in run.races()] == [(3, 8)]


def sent(*between: tuple[Any, ...], send: int = ATOM_G, take: int = ATOM_G, behind: Any = "fence") -> bool:
    """Whether what thread 33 of block 0 writes and tells by a flag is in order for thread 34 of block 1."""
    after = [(1, behind, 34)] if behind == "fence" else [(1, behind)] if behind else []
    steps = [(0, STORE_G, 33, 0), *between, (0, send, 33, 8), (1, take, 34, 8), *after, (1, LOAD_G, 34, 0)]
    return pairs(*steps) == []


def test_a_flag_after_a_fence_orders_another_block() -> None:
    fence = (0, "fence", 33)
    assert sent(fence)
    assert not sent()
    assert not sent((0, "fence", 34)), "another lane's"
    assert not sent((0, "fence", 1)), "another warp's"
    assert not sent((1, "fence", 33)), "another block's"
    assert not sent((0, "block fence", 33)), "for its own block alone"
    assert sent(fence, behind="barrier")
    assert not sent(fence, behind=None)
    assert not sent(fence, behind=None, take=STRONG_G)
    assert sent(fence, take=ACQUIRE_G, behind=None)
    assert sent(send=RELEASE_G)
    assert sent(send=RELEASE_G, take=ACQUIRE_G, behind=None)
    assert not sent(fence, send=STRONG_G), "which writes nothing"
    assert not sent(fence, take=LOAD_G), "which is no strong read"
    assert not sent((0, "barrier"))


def test_a_flag_orders_only_earlier_accesses() -> None:
    steps = [
        (0, STORE_G, 33, 0),
        (0, "fence", 33),
        (0, ATOM_G, 33, 8),
        (0, STORE_G, 33, 1),
        (1, ATOM_G, 34, 8),
        (1, "fence", 34),
    ]
    assert pairs(*steps, (1, LOAD_G, 34, 0)) == []
    assert pairs(*steps, (1, LOAD_G, 34, 1)) == [(33, 34, 2)]
    assert pairs(*steps, (2, LOAD_G, 34, 0)) == [(33, 34, 2)], "who has not read the flag"
    later_steps = [(1, ATOM_G, 34, 9), (2, ATOM_G, 3, 9), (2, "fence", 3), (2, LOAD_G, 3, 0)]
    assert pairs(*steps, *later_steps) == [], "handed on"
    assert pairs(*steps[:4], (1, ATOM_G, 34, 10), (1, "fence", 34), (1, LOAD_G, 34, 0)) == [(33, 34, 2)]


def test_a_store_is_ordered_after_the_loads_that_guard_it() -> None:
    steps = [(0, STORE_G, 33, 0), (0, "fence", 33), (0, ATOM_G, 33, 8), (1, ATOM_G, 34, 8)]
    assert pairs(*steps, (1, STORE_G, 34, 0)) == []
    assert pairs(*steps, (1, LOAD_G, 34, 0)) == [(33, 34, 2)], "a load may come before"


def test_a_flag_orders_only_lanes_that_set_it_after_a_fence() -> None:
    run = run_steps((0, STORE_G, 33, 0), (0, STORE_G, 34, 1), (0, "fence", 33))
    start = run.starts[0]
    run.access(0, ATOM_G, {33: start + 32, 34: start + 36})
    run.access(1, ATOM_G, {9: start + 36})
    run.tell(1, 0, layout.FENCE, None, FULL)
    run.access(1, LOAD_G, {3: start + 4})
    assert [race[1:3] for race in run.races()] == [(1, (0, 34, STORE_G))]
    steps = [
        (0, STORE_G, 32, 0),
        (0, "fence", 32),
        (0, "fence", 33),
        (0, ATOM_G, 33, 9),
        (0, STRONG_G, 32, 8),
    ]
    assert pairs(*steps, (1, ATOM_G, 34, 8), (1, "fence", 34), (1, LOAD_G, 34, 0)) == [(32, 34, 2)]


def test_writes_of_flags_yield_to_other_warps() -> None:
    run = run_steps((0, ATOM_G, 3, 8))
    assert run.awaited == [], "no fence, no flag"
    steps = [
        ((0, ATOM_G, 3, 8), True),  # sets a flag
        ((1, STRONG_G, 3, 8), False),  # reads it
        ((1, ATOM_G, 3, 8), True),  # writes where one is
        ((1, ATOM_G, 3, 9), False),  # where none is
        ((1, RELEASE_G, 3, 9), True),
    ]
    run.tell(0, 0, layout.FENCE, None, FULL)
    for (block, site, thread, word), awaited in steps:
        run.access(block, site, {thread: run.starts[0] + 4 * word})
        assert run.awaited.pop() is awaited


def test_flags_of_a_block_order_its_threads() -> None:
    for flag in (ATOM_S, ATOM_G):
        steps = [(0, STORE_S, 3, 0), (0, "block fence", 3), (0, flag, 3, 8), (0, flag, 40, 8)]
        assert pairs(*steps, (0, LOAD_S, 40, 0)) == []
        assert pairs(*steps, (0, LOAD_S, 41, 0)) == [(3, 41, 1)]
    other = [(0, STORE_G, 3, 0), (0, "fence", 3), (0, ATOM_S, 3, 8), (1, ATOM_S, 40, 8), (1, "fence", 40)]
    assert pairs(*other, (1, LOAD_G, 40, 0)) == [(3, 40, 2)], "each block has shared memory of its own"


@pytest.mark.parametrize("unit", [1, 2, 4])
def test_racing_stores_of_equal_values_are_marked_as_such(unit: int) -> None:
    def agree(*stores: dict[int, tuple[int, int]]) -> bool:
        """Stores of (word, value) by lanes: whether the one race among them has equal values."""
        run = Run(unit=unit, checks_unwritten=False)
        for store in stores:
            places = {thread: unit * word for thread, (word, _) in store.items()}
            run.access(0, STORE_S, places, {thread: value for thread, (_, value) in store.items()})
            for word, value in store.values():
                run.shared[0][unit * word] = value & 255
        ((*_, agrees),) = run.races()
        return bool(agrees)

    assert agree({3: (0, 7), 5: (0, 7)})
    assert not agree({3: (0, 7), 5: (0, 6)})
    assert agree({3: (0, 7)}, {40: (0, 7)})
    assert not agree({3: (0, 7)}, {40: (0, 6)})
    assert agree({3: (0, 7)}, {3: (1, 9), 5: (0, 7)}), "lane 3 now stores elsewhere"
    assert agree({3: (0, 7)}, {40: (0, 1 << 8 * unit | 7)}), "more bits than a word has"


def test_shadow_memory_is_reset_when_a_worker_starts_a_block() -> None:
    run = Run(blocks=2)
    run.access(0, STORE_S, {3: 4})
    run.access(0, STORE_L, {3: 4})
    run.tell(0, 1, layout.FENCE, None, FULL)
    run.begin(0, 7)
    run.access(0, LOAD_S, {40: 4})
    run.access(0, LOAD_L, {3: 4})
    findings = run.findings()
    assert [(f.finding_kind, f.space, f.word) for f in findings] == [
        (structures.UNWRITTEN, "shared", 1),
        (structures.UNWRITTEN, "local", 3 * 4 + 1),
    ]
    assert [run.block(f.second_access) for f in findings] == [7, 7]
    run.access(0, STORE_G, {33: run.starts[0]})
    run.access(0, ATOM_G, {33: run.starts[0] + 32})
    run.access(1, ATOM_G, {33: run.starts[0] + 32})
    run.tell(1, 1, layout.FENCE, None, FULL)
    run.access(1, LOAD_G, {33: run.starts[0]})
    assert len(run.races()) == 1, "the fence was the earlier block's"


def test_reads_of_uninitialized_shared_memory_are_reported() -> None:
    run = Run(checks_races=False)
    run.access(0, STORE_S, {3: 8})
    run.access(0, LOAD_S2, {40: 4, 41: 8})
    run.access(1, LOAD_S, {3: 8})
    run.access(0, ATOM_S, {3: 40})
    run.access(0, LOAD_S, {3: 40})
    findings = [
        (f.word, f.count, run.block(f.second_access), f.second_access.thread, f.first_access)
        for f in run.findings()
    ]
    assert findings == [(1, 2, 0, 40, None), (10, 1, 0, 3, None), (2, 1, 1, 3, None)]
    run.access(0, STORE_S4, {3: 0})
    run.access(0, LOAD_S2, {3: 0, 4: 8})
    assert run.findings() == []


def test_reads_of_uninitialized_local_memory_are_reported() -> None:
    run = Run(local=4)
    run.access(0, STORE_L, {33: 4})
    run.access(0, LOAD_L, {33: 4})
    run.access(0, LOAD_L2, {33: 0})
    run.access(0, LOAD_L2, {33: 4})
    assert run.findings() == [], "a structure has gaps that nobody writes"
    run.access(0, LOAD_L2, {33: 8})
    run.access(0, LOAD_L, {34: 4})
    run.access(0, LOAD_L, {1: 4})
    narrow, wide = run.findings()
    assert (wide.word, wide.count, wide.second_access.thread, wide.space) == (33 * 4 + 2, 2, 33, "local")
    assert (narrow.word, narrow.count, narrow.second_access.thread) == (4 * 1 + 1, 2, 1)
    silent = Run(checks_unwritten=False)
    silent.access(0, LOAD_L, {33: 4})
    assert silent.findings() == []


def test_reads_of_uninitialized_arrays_are_reported() -> None:
    run = Run(arrays=2, checks_races=False, unwritten_words={0: np.ones(1, bool)})
    fresh = np.array([True] * 8 + [False] * 8)
    run.checker.unwritten_words = {run.starts[1]: fresh}
    start = run.starts[1]
    run.access(0, LOAD_G, {3: run.starts[0]})
    run.access(0, STORE_G2, {3: start + 4})
    run.access(0, LOAD_G, {3: start + 4, 4: start + 8, 5: start + 32})
    assert run.findings() == []
    run.access(1, LOAD_G4, {3: start, 4: start + 28})
    (finding,) = run.findings()
    assert (finding.start, finding.word, finding.count, finding.space) == (start, 0, 3, "global")
    run.access(1, ATOM_G, {3: start})
    assert [f.word for f in run.findings()] == [0]
    run.access(1, LOAD_G, {3: start})
    assert run.findings() == []


def test_accesses_outside_their_array_are_reported() -> None:
    memory = DeviceMemory(1 << 20)
    start = Run(memory=memory).starts[0]
    run = Run(
        memory=memory,
        arrays=2,
        find_bounds=lambda i: (start, start + 64),
        checks_races=False,
        checks_unwritten=False,
    )
    run.access(0, LOAD_G, {0: start, 1: start + 60})
    run.access(0, STORE_G2, {0: start, 1: start + 56})
    assert run.findings() == []
    run.access(0, LOAD_G, {0: start - 4, 1: start + 64})
    run.access(0, STORE_G2, {5: start + 60})
    first, second = run.findings()
    assert (first.finding_kind, first.start, first.word, first.count, first.second_access.thread) == (
        structures.OUTSIDE_ARRAY,
        start - 4,
        0,
        2,
        0,
    )
    assert (second.start, second.second_access.thread, second.first_access) == (start + 60, 5, None)
    kind = Run(
        memory=memory, find_bounds=lambda i: (start, start + 64), checks_strays=False, checks_unwritten=False
    )
    kind.access(0, LOAD_G, {0: start - 4})
    assert kind.findings() == []


def test_generic_addresses_are_resolved_to_their_memory_space() -> None:
    run = Run()
    shared = layout.SHARED_TAG | 8
    local = layout.LOCAL_TAG | 8
    run.access(0, LOAD_A, {3: shared})
    run.access(0, LOAD_A, {4: local})
    run.access(0, STORE_A, {5: run.starts[0] + 12})
    run.access(0, LOAD_A, {40: run.starts[0] + 12})
    findings = {(f.finding_kind, f.space, f.word, f.second_access.thread) for f in run.findings()}
    assert findings == {
        (structures.UNWRITTEN, "shared", 2, 3),
        (structures.UNWRITTEN, "local", 4 * 4 + 2, 4),
        (structures.RACE, "global", 3, 40),
    }
    run.access(0, STORE_A, {3: shared, 4: local})
    run.access(0, LOAD_A, {3: shared, 4: local})
    assert run.findings() == []


def test_accesses_outside_of_any_array_are_no_race() -> None:
    run = Run(arrays=3, checks_unwritten=False)
    first, second, third = sorted(run.starts)
    outside = [first - 4, first + 64, second - 4, second + 64, third + 64]
    for place in outside:
        run.access(0, STORE_G, {3: place})
        run.access(0, STORE_G, {4: place})
    assert run.findings() == []
    for place in (first, first + 60, second, second + 60, third, third + 60):
        run.access(0, STORE_G, {3: place})
        run.access(0, STORE_G, {4: place})
        (finding,) = run.findings()
        assert finding.start + 4 * finding.word == place
        assert finding.start in (first, second, third)


def test_read_only_arrays_have_no_access_history() -> None:
    def bounds(i: Any) -> tuple[int, int]:
        return (1 << 60, 1 << 61) if "global" in i.parts or i.text.startswith(("ld.u", "st.u")) else (0, 1)

    run = Run(find_bounds=bounds, checks_strays=False, checks_unwritten=False)
    run.access(0, LOAD_G, {3: run.starts[0]})
    run.access(0, STORE_G, {40: run.starts[0]})
    run.access(0, LOAD_G, {3: run.starts[0]})
    assert [race[2:4] for race in run.races()] == [((0, 40, STORE_G), (0, 3, LOAD_G))], "the first is unknown"
    run = Run(checks_unwritten=False)
    run.access(0, LOAD_G, {3: run.starts[0]})
    run.access(0, STORE_G, {40: run.starts[0]})
    assert [race[2:4] for race in run.races()] == [((0, 3, LOAD_G), (0, 40, STORE_G))]


def test_accesses_outside_device_heap_blocks_are_reported() -> None:
    run = Run(mib=16, warps=2, checks_unwritten=False, checks_races=False)
    heap = run.memory.open_heap()
    run = Run(memory=run.memory, checks_heap=True, checks_unwritten=False, checks_races=False)
    with heap.keep_freed_blocks():  # with room between blocks
        heap.allocate_block(16)
        block = heap.allocate_block(64)
        run.access(0, STORE_G, {0: block, 1: block + 60, 2: run.starts[0]})
        run.access(0, LOAD_G4, {33: block + 48})
        assert run.recorder.outside == []
        run.access(0, STORE_G, {33: block - 4, 34: block + 4, 35: block + 61})
        run.access(0, LOAD_G4, {3: block + 52})
        assert [(a.thread, place) for a, place in run.recorder.outside] == [
            (33, block - 4),
            (35, block + 61),
            (3, block + 52),
        ]
        assert [run.site(a) for a, _ in run.recorder.outside] == [STORE_G, STORE_G, LOAD_G4]
        run.access(0, STORE_G, {0: heap.address - 4, 1: heap.address + heap.size_bytes})
        assert len(run.recorder.outside) == 3
        run.access(0, STORE_G, {0: heap.address + heap.size_bytes - 4})
        assert len(run.recorder.outside) == 4


ISSUE = (0, COPY_S, 3, 5)


def test_accesses_before_a_copy_is_awaited_are_reported() -> None:
    def arrived(event: int, thread: int = 3) -> Any:
        return thread, event

    def findings_of(*steps: Any) -> list[tuple[int, int, int]]:
        run = run_steps(checks_unwritten=False)
        for step in steps:
            if len(step) == 2 and step[1] != "barrier":
                thread, event = step
                site = layout.COPY_EVENTS - (COPY_S << 2 | event)
                run.tell(0, thread // 32, site, [20] * 32, 1 << thread % 32)
            elif step[1] == "barrier":
                run.barrier(0)
            else:
                run.access(0, step[1], {step[2]: 4 * step[3]})
        return [
            (f.finding_kind, f.first_access.thread if f.first_access else -1, f.second_access.thread)
            for f in run.findings()
        ]

    hasty = structures.PENDING_COPY
    race = structures.RACE
    by_wait = layout.COPY_DONE_BY_WAIT
    to_barrier = layout.COPY_BOUND_TO_BARRIER
    by_barrier = layout.COPY_DONE_BY_BARRIER
    assert findings_of(ISSUE, READ) == [(hasty, 3, 9)]
    assert findings_of(ISSUE, (0, LOAD_S, 3, 5)) == [(hasty, 3, 3)], "its own thread, too"
    assert findings_of(ISSUE, (0, LOAD_S, 9, 6)) == []
    assert findings_of(ISSUE, (0, "barrier"), READ) == [(hasty, 3, 9)], "a barrier does not wait for it"
    assert findings_of(ISSUE, arrived(by_wait), (0, LOAD_S, 3, 5)) == []
    assert findings_of(ISSUE, arrived(by_wait), READ) == [(race, 3, 9)]
    assert findings_of(ISSUE, arrived(by_wait), (0, "barrier"), READ) == []
    assert findings_of(ISSUE, (0, COPY_S, 4, 5)) == [(hasty, 3, 4)]
    assert findings_of(ISSUE, arrived(to_barrier), READ) == [(hasty, 3, 9)]
    assert findings_of(ISSUE, arrived(to_barrier), (0, "barrier"), arrived(by_barrier), READ) == []
    assert findings_of(ISSUE, arrived(by_barrier), (0, LOAD_S, 3, 5)) == []
    two = [ISSUE, (0, COPY_S, 3, 5), arrived(by_wait)]
    assert findings_of(*two, (0, LOAD_S, 3, 5)) == [(hasty, 3, 3)] * 2, "one is still on its way"
    assert findings_of(READ, (0, STORE_S, 3, 5)) == [(race, 9, 3)]


def test_copies_of_an_earlier_block_are_forgotten() -> None:
    run = run_steps(ISSUE)
    run.begin(0, 9)
    run.access(0, LOAD_S, {3: 20})
    assert run.findings() == []


# -- barriers and shuffles --------------------------------------------------------------------------------


def come(run: Run, warp: int, barrier: int, mask: int = FULL, block: int = 0) -> None:
    run.tell(block, warp, layout.AT_BLOCK_BARRIER, [barrier] * 32, mask)


def test_partial_warps_at_a_barrier_are_reported() -> None:
    run = Run(checks_barriers=True)
    come(run, 0, BAR)
    come(run, 1, BAR)
    run.barrier(0)
    assert run.recorder.barriers == []
    come(run, 1, BAR, 0b1100)
    run.frames[0][1, 2:32] = layout.EXITED
    come(run, 1, BAR, 0b11)
    come(run, 1, BAR, 0)
    ((block, arrival, other),) = run.recorder.barriers
    assert (block, arrival.warp, arrival.mask, arrival.instruction, other) == (
        0,
        1,
        0b1100,
        run.code[BAR],
        None,
    )
    assert arrival.first_thread == 34
    run.recorder.barriers.clear()
    come(run, 0, BAR_1, 0b11)
    come(run, 0, BAR_LOOSE, 0b11)
    assert run.recorder.barriers == [], "named ones are for some, and without .aligned lanes come one by one"
    silent = Run()
    come(silent, 0, BAR, 0b11)
    assert silent.recorder.barriers == []


def test_threads_at_different_barriers_are_reported_at_completion() -> None:
    run = Run(checks_barriers=True, warps=3)
    for _ in range(2):
        come(run, 0, BAR)
        come(run, 1, BAR_IF)
        come(run, 2, BAR_IF)
        assert run.recorder.barriers == []
        run.checker.barrier(0, np.ones((3, 32), bool), False, 1)
        assert run.recorder.barriers == [], "a named barrier opened, not this one"
        run.barrier(0)
        ((block, arrival, other),) = run.recorder.barriers
        assert other is not None
        assert (block, arrival.warp, arrival.instruction) == (0, 1, run.code[BAR_IF])
        assert (other.warp, other.instruction, other.mask) == (0, run.code[BAR], FULL)
        run.recorder.barriers.clear()
    for barrier in (BAR_IF, BAR):
        for warp in range(3):
            come(run, warp, barrier)
        run.barrier(0)
    assert run.recorder.barriers == []


def test_arrivals_of_an_earlier_block_are_forgotten() -> None:
    run = Run(checks_barriers=True)
    come(run, 0, BAR)
    run.begin(0, 5)
    come(run, 0, BAR_IF)
    come(run, 1, BAR_IF)
    run.barrier(0)
    assert run.recorder.barriers == []


def test_a_barrier_of_two_instructions_orders_accesses() -> None:
    run = run_steps((0, STORE_G, 3, 0), (0, STORE_S, 3, 0), (0, "barrier"), checks_barriers=True)
    come(run, 0, BAR)
    come(run, 1, BAR_IF)
    run.barrier(0)
    run.access(0, LOAD_G, {40: run.starts[0]})
    run.access(0, LOAD_S, {40: 0})
    assert run.findings() == []
    run.access(0, STORE_S, {40: 4})
    come(run, 0, BAR)
    come(run, 1, BAR_IF)
    run.barrier(0)
    run.access(0, LOAD_S, {3: 4})
    assert run.findings() == []
    run.access(0, STORE_S, {5: 4})
    assert [race[2][1] for race in run.races()] == [3]


def test_barrier_arrivals_order_threads_that_wait_later() -> None:
    def finding_count(*waits: int, number: int = 1, later: tuple[Any, ...] = (0, LOAD_S, 40, 0)) -> int:
        run = run_steps((0, STORE_S, 3, 0))
        run.tell(0, 0, layout.BARRIER_ARRIVAL, [min(number, 1)] * 32, 0b1000)
        run.access(0, STORE_S, {3: 4})
        warps = np.zeros((2, 32), bool)
        warps.reshape(-1)[list(waits)] = True
        if number:
            run.checker.barrier(0, warps, False, number)
        else:  # for all that have not ended
            run.live[:] = warps
            run.barrier(0)
        run.access(0, later[1], {later[2]: 4 * later[3]})
        return len(run.findings())

    assert finding_count(40, 41) == 0
    assert finding_count(41, 42) == 1
    assert finding_count(40, 41, number=2) == 1
    assert finding_count(40, 41, later=(0, LOAD_S, 40, 1)) == 1, "what came behind the arrival"
    assert finding_count(40, 41, number=0) == 0
    assert finding_count(41, 42, number=0) == 1
    assert finding_count(40, 41, number=0, later=(0, LOAD_S, 40, 1)) == 1


def test_shuffles_from_inactive_lanes_are_reported() -> None:
    run = Run()
    run.tell(0, 1, layout.SHUFFLE, [*range(1, 32), 0], FULL)
    assert run.recorder.absences == []
    run.tell(0, 1, layout.SHUFFLE, [5] * 32, 0b111)
    assert [(a.thread, source) for a, source in run.recorder.absences] == [(32, 5), (33, 5), (34, 5)]
    assert {run.site(a) for a, _ in run.recorder.absences} == {SHUFFLE}
    run.recorder.absences.clear()
    run.tell(0, 0, layout.SHUFFLE, [1, 7, 2, *[0] * 29], 0b111)
    assert [(a.thread, source) for a, source in run.recorder.absences] == [(1, 7)]
    silent = Run(checks_shuffles=False)
    silent.tell(0, 1, layout.SHUFFLE, [5] * 32, 0b111)
    assert silent.recorder.absences == []


# -- tables -----------------------------------------------------------------------------------------------


def test_the_table_of_findings_is_emptied_before_it_is_full() -> None:
    run = Run(blocks=1, words=64, checks_unwritten=False)
    run.checker.shared_state.entry_limit = 3
    sites = [STORE_S, ATOM_S, LOAD_S, STRONG_S]
    for word, first in enumerate(sites):
        for other, second in enumerate(sites):
            run.access(0, first, {3: 16 * word + 4 * other})
            run.access(0, second, {40: 16 * word + 4 * other})
    assert len(run.recorder.occurrences) >= 4, "handed over on the way"
    total = run.recorder.occurrences + run.findings()
    assert len({(run.site(f.first_access), run.site(f.second_access)) for f in total if f.first_access}) == 8


def test_races_are_found_after_the_segment_table_is_full() -> None:
    run = Run(blocks=2, checks_unwritten=False)
    run.access(0, STORE_G, {3: run.starts[0]})
    for turn in range(1500):
        run.barrier(turn % 2)
    for _ in range(800):
        run.checker.barrier(0, np.ones((2, 32), bool), False, 1)
    run.access(1, LOAD_G, {3: run.starts[0]})
    ((first, second),) = [race[2:4] for race in run.races()]
    assert (first, second) == ((0, 3, STORE_G), (1, 3, LOAD_G))
