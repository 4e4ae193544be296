"""Collective schedules in slices: results equal NumPy in every valid stream order, and slices overlap."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest

from gpulab.lab.links import runs, schedules
from gpulab_course.teach.judge.python import several
from virtualgpu.records.traffic.collective import Move, Operation, make_input_arrays

OPERATIONS = get_args(Operation)


def bounds_of(elements: int, chunks: int) -> list[int]:
    return [index * elements // chunks for index in range(chunks + 1)]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("algorithm", schedules.ALGORITHMS)
def test_collectives_are_correct_in_every_stream_order(operation: Operation, algorithm: str) -> None:
    """Use three GPUs, one or four slices per chunk, and a length that these numbers do not divide."""
    _, steps = schedules.make_schedule(operation, algorithm, 3)
    chunks = 1 + max(move.chunk for step in steps for move in step)
    for order in several.RUN_MODES:
        for slices in (1, 4):
            with several.open_gpu_machine(3) as machine:
                run = runs.ScheduleRun(machine.cp, 3, bounds_of(209, chunks))
                with several.run_in_order(machine, order) as errors:
                    for step in steps:
                        run.submit_step(step, slices)
                    run.wait()
                assert run.check_results(operation) == (True,) * 3, order
            assert not errors


def arrays_after(gpus: int, elements: int, order: Any, steps: list[tuple[list[Move], int]]) -> list[Any]:
    """Return the arrays of all GPUs after the steps, each with its number of slices."""
    with several.open_gpu_machine(gpus) as machine:
        run = runs.ScheduleRun(machine.cp, gpus, [0, elements])
        with several.run_in_order(machine, order) as errors:
            for moves, slices in steps:
                run.submit_step(moves, slices)
            run.wait()
        arrays = [run._find_array(gpu).get() for gpu in range(gpus)]
    assert not errors
    return arrays


@pytest.mark.parametrize("order", several.RUN_MODES)
@pytest.mark.parametrize("slices", [1, 5])
def test_moves_of_a_step_read_the_arrays_of_the_previous_step(order: Any, slices: int) -> None:
    """Two arrays are swapped three times in a row, while slices of the first swap are in flight."""
    swap = [Move(0, 1, 0), Move(1, 0, 0)]
    arrays = arrays_after(2, 101, order, [(swap, slices)] * 3)
    np.testing.assert_array_equal(arrays, make_input_arrays(2, 101)[::-1])


@pytest.mark.parametrize("order", several.RUN_MODES)
def test_a_copy_waits_for_an_earlier_sum_into_the_same_chunk(order: Any) -> None:
    steps = [([Move(1, 0, 0, True)], 2), ([Move(2, 0, 0)], 2)]
    np.testing.assert_array_equal(arrays_after(3, 101, order, steps)[0], make_input_arrays(3, 101)[2])


def test_consecutive_all_reduces_run_in_order() -> None:
    """Three all-reduces in a row: the sum, twice the sum, four times the sum."""
    _, steps = schedules.make_schedule("all-reduce", "ring", 2)
    with several.open_gpu_machine(2) as machine:
        run = runs.ScheduleRun(machine.cp, 2, bounds_of(99, 2))
        with several.run_in_order(machine, "checked") as errors:
            for step in 3 * steps:
                run.submit_step(step, 3)
            run.wait()
        arrays = [run._find_array(gpu).get() for gpu in range(2)]
    assert not errors
    for array in arrays:
        np.testing.assert_array_equal(array, 4 * np.sum(make_input_arrays(2, 99), axis=0))


def test_copies_and_sums_overlap() -> None:
    """The next slice is copied while the previous one is added, without a host wait in between."""
    _, steps = schedules.make_schedule("all-reduce", "ring", 2)
    with several.open_gpu_machine(2) as machine:
        run = runs.ScheduleRun(machine.cp, 2, bounds_of(1 << 19, 2))
        recorder = machine.side.timeline_recorder()
        recorder.start()
        for step in steps:
            run.submit_step(step, 4)
        run.wait()
        activities = recorder.stop().activities
    copies = [a for a in activities if a.copy_kind == "PtoP"]
    sums = [a for a in activities if a.copy_kind is None]
    assert (len(copies), len(sums)) == (2 * 2 * 4, 2 * 4)
    assert any(c.start_ns < s.end_ns and s.start_ns < c.end_ns for c in copies for s in sums)
