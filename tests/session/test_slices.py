"""Schedules in slices: results against NumPy's, in every order that streams allow; who waits for whom."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest

from gpulab.lab.links import runs, schedules
from gpulab_course.teach.judge.python import several
from virtualgpu.records.traffic.collective import Move, Operation, input_arrays

OPERATIONS = get_args(Operation)


def bounds_of(elements: int, chunks: int) -> list[int]:
    return [at * elements // chunks for at in range(chunks + 1)]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("algorithm", schedules.ALGORITHMS)
def test_slices_arrive_in_every_order_that_streams_allow(operation: Operation, algorithm: str) -> None:
    """Three GPUs, whole chunks and four slices of each, lengths that do not divide."""
    _, steps = schedules.schedule_of(operation, algorithm, 3)
    chunks = 1 + max(move.chunk for step in steps for move in step)
    for how in several.HOWS:
        for slices in (1, 4):
            with several.gpus(3) as made:
                run = runs.Run(made.cp, 3, bounds_of(209, chunks))
                with several.tried(made, how) as said:
                    for step in steps:
                        run.give(step, slices)
                    run.wait()
                assert run.right(operation) == (True,) * 3, how
            assert not said


@pytest.mark.parametrize("how", several.HOWS)
@pytest.mark.parametrize("slices", [1, 5])
def test_moves_of_a_step_read_what_was_there_before_it(how: Any, slices: int) -> None:
    """Two arrays are swapped, three times in a row, while slices of the first time are on their way."""
    with several.gpus(2) as made:
        run = runs.Run(made.cp, 2, [0, 101])
        with several.tried(made, how) as said:
            for _ in range(3):
                run.give([Move(0, 1, 0), Move(1, 0, 0)], slices)
            run.wait()
        held = [run._array(gpu).get() for gpu in range(2)]
    assert not said
    for found, wanted in zip(held, reversed(input_arrays(2, 101)), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("how", several.HOWS)
def test_a_copy_into_a_place_waits_for_the_sum_there(how: Any) -> None:
    """What GPU 0 has added nobody reads; what GPU 2 sends comes on top of it."""
    with several.gpus(3) as made:
        run = runs.Run(made.cp, 3, [0, 101])
        with several.tried(made, how) as said:
            run.give([Move(1, 0, 0, True)], 2)
            run.give([Move(2, 0, 0)], 2)
            run.wait()
        held = run._array(0).get()
    assert not said
    np.testing.assert_array_equal(held, input_arrays(3, 101)[2])


def test_the_order_holds_beyond_one_operation() -> None:
    """All-reduces in a row double: of n GPUs the sum is n times itself the second time."""
    _, steps = schedules.schedule_of("all-reduce", "ring", 2)
    with several.gpus(2) as made:
        run = runs.Run(made.cp, 2, bounds_of(99, 2))
        with several.tried(made, "checked") as said:
            for step in 3 * steps:
                run.give(step, 3)
            run.wait()
        held = [run._array(gpu).get() for gpu in range(2)]
    assert not said
    for found in held:
        np.testing.assert_array_equal(found, 4 * np.sum(input_arrays(2, 99), axis=0))


def test_copies_and_sums_overlap() -> None:
    """The next slice comes in while one is added, and no wait of the host lies between."""
    _, steps = schedules.schedule_of("all-reduce", "ring", 2)
    with several.gpus(2) as made:
        run = runs.Run(made.cp, 2, bounds_of(1 << 19, 2))
        recorder = made.side.timeline_recorder()
        recorder.start()
        for step in steps:
            run.give(step, 4)
        run.wait()
        seen = recorder.stop().activities
    copies = [a for a in seen if a.copy_kind == "PtoP"]
    sums = [a for a in seen if a.copy_kind is None]
    assert (len(copies), len(sums)) == (2 * 2 * 4, 2 * 4)
    assert any(c.start_ns < s.end_ns and s.start_ns < c.end_ns for c in copies for s in sums)


def test_large_chunks_are_cut_and_small_ones_are_not() -> None:
    with several.gpus(2) as made:
        assert runs.Run(made.cp, 2, bounds_of(1000, 2)).slices == 1
        large = runs.Run(made.cp, 2, [0, 1, (5 * runs.SLICE_BYTES) // 4])
    assert large.slices == runs.MOST_SLICES > 1
