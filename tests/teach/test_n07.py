"""Notebook 07: views and exercises about streams agree with the device."""

from __future__ import annotations

import numpy as np
import pytest

import gpulab as gl
from gpulab_course.content.n07_streams import clocks, exercises, figures, work


@pytest.fixture(autouse=True, params=["virtual:T4", "virtual:H200"])
def _device(request: pytest.FixtureRequest) -> None:
    gl.use_device(request.param)


def test_kernels_equal_their_numpy_versions() -> None:
    x = np.random.default_rng(7).random(1000, dtype=np.float32)
    a = gl.cp.asarray(x)
    work.simmer(a)
    np.testing.assert_array_equal(a.get(), work.simmer_by_numpy(x))
    np.testing.assert_array_equal(work.decide(gl.cp.asarray(x)).get(), work.decide_by_numpy(x))
    # Compare the closed form with the iteration.
    bits = x.view(np.uint32)
    for _ in range(5):
        bits = bits * np.uint32(1664525) + np.uint32(1013904223)
    np.testing.assert_array_equal(work.decide_by_numpy(x, 5), (bits >> np.uint32(8)) / np.float32(2**24))


def test_a_missing_event_is_detected_and_chunking_saves_time() -> None:
    single, cut, early = (figures.run_conveyor(*how) for how in ((1, True), (8, True), (8, True, False)))
    assert cut.span_ns < 0.8 * single.span_ns
    assert not figures.find_early_kernels(single)
    assert not figures.find_early_kernels(cut)
    assert figures.find_early_kernels(early)
    for copy, kernel in figures.find_early_kernels(early):
        assert early.activities[copy].copy_kind == "HtoD"
        assert early.activities[kernel].name == "simmer"
    pageable = figures.run_conveyor(8, pinned=False)
    assert pageable.span_ns > 0.9 * figures.run_conveyor(1, pinned=False).span_ns


def test_the_conveyor_controls_change_picture_and_summary() -> None:
    view = figures.Conveyor(4)
    with_event = view.summary
    view.waits = 0
    assert view.panels[0].faults
    assert "began before" in view.summary
    view.waits = 1
    view.pieces = 2
    assert not view.panels[0].faults
    assert view.summary != with_event
    assert view.pictures == 3


def test_a_stream_race_has_several_results_and_a_wait_leaves_one() -> None:
    def total(cp: object, ordered: bool) -> float:
        stream = gl.cp.cuda.Stream(non_blocking=True)
        a = gl.cp.ones(64, dtype=gl.cp.float32)
        if ordered:
            stream.wait_event(gl.cp.cuda.Stream.null.record())
        with stream:
            total_ = a.sum()
        stream.synchronize()
        return float(total_)

    assert sorted(clocks.possible_results(lambda cp: total(cp, False))) == [0, 64]
    assert clocks.possible_results(lambda cp: total(cp, True)) == [64]


def test_the_host_clock_is_modelled() -> None:
    start_ms = clocks.host_ms()
    clocks.busy(1500)
    assert clocks.host_ms() - start_ms == pytest.approx(1.5)


def test_a_rollout_with_two_environments_overlaps() -> None:
    turns, overlapped = (figures.played(p, 4) for p in (exercises.in_turns, exercises.rollout))
    step_us = work.Environment.STEP_US
    assert turns.duration_ns / 8e3 > 1.3 * step_us
    assert step_us <= overlapped.duration_ns / 8e3 < 1.25 * step_us
