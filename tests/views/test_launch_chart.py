"""Waves, places and the slider of the launch chart."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpulab.views import LaunchChart
from gpulab.views._waves import Waves, limiter_words
from gpulab.views.parts.plots import nice_ticks
from tests.views import synthetic
from tests.views.synthetic import boxes
from virtualgpu.records import LaunchTrace


def blocks(view: LaunchChart, panel: int = 0) -> dict[str, Any]:
    """The spans of the blocks as the browser gets them."""
    return next(item for item in boxes(view.scene, "plot")[panel]["items"] if item["item"] == "spans")


def column(view: LaunchChart, name: str) -> np.ndarray:
    code, offset, count = blocks(view)[name]["$"]
    return np.frombuffer(view.data, np.dtype(f"<{code}"), count, offset)


def heads(view: LaunchChart) -> list[str]:
    return [box["text"] for box in boxes(view.scene, "words")]


def test_waves_and_tail_follow_from_what_fits() -> None:
    waves = Waves(synthetic.launch_trace(256))
    per_wave = 6 * 108
    assert waves.trace.blocks_per_wave == per_wave
    assert (waves.full_waves, waves.tail_blocks) == divmod(977, per_wave)
    assert waves.wave.tolist() == [i // per_wave for i in range(977)]
    assert waves.in_tail.sum() == 977 - per_wave
    assert waves.wave_words() == "1 full wave and a tail of 329 blocks (51 % full)"


def test_whole_waves_have_no_tail_and_small_grids_no_wave() -> None:
    assert not Waves(synthetic.launch_trace(blocks=1296)).in_tail.any()
    assert Waves(synthetic.launch_trace(blocks=1296)).wave_words() == "2 full waves"
    assert Waves(synthetic.launch_trace(blocks=40)).wave_words() == (
        "less than one wave (6 % of the blocks that fit at once)"
    )


def test_blocks_on_one_place_never_overlap() -> None:
    waves = Waves(synthetic.launch_trace(256))
    trace, order = waves.trace, waves.order
    assert waves.slot.max() < trace.occupancy.blocks_per_sm
    for sm in range(0, 108, 9):
        for slot in range(6):
            rows = order[(trace.sm_id[order] == sm) & (waves.slot == slot)]
            assert (trace.start_ns[rows][1:] >= trace.end_ns[rows][:-1]).all()


def test_idle_share_is_what_the_blocks_leave() -> None:
    trace = synthetic.wide_launch(1_000)  # 648 places, two rounds of 4 µs
    assert Waves(trace).idle_share == pytest.approx(1 - 1_000 / 1_296)


def test_the_slider_asks_for_a_launch_and_shows_it() -> None:
    asked: list[int] = []

    def at_block_size(threads: int) -> LaunchTrace:
        asked.append(threads)
        return synthetic.launch_trace(threads)

    view = LaunchChart(synthetic.launch_trace(256), at_block_size)
    assert [box["trait"] for box in view.controls] == ["block_threads"]
    assert view.block_threads == 256
    before = repr(view)
    view.block_threads = 512
    assert asked == [512]
    assert view.pictures == 1
    assert any(text.startswith("512 threads a block: ") for text in heads(view))
    assert column(view, "row").size == 489
    assert repr(view) != before
    assert "489 blocks of 512 threads" in repr(view)
    view.close()


def test_an_error_is_shown_and_the_last_picture_kept() -> None:
    def refuse(threads: int) -> LaunchTrace:
        if threads == 1024:
            raise ValueError("too many resources requested for launch")
        return synthetic.launch_trace(threads)

    view = LaunchChart(synthetic.launch_trace(256), refuse)
    data = view.data
    view.block_threads = 1024
    assert view.error == (
        "The launch with 1024 threads a block failed. ValueError: too many resources requested for launch"
    )
    assert view.data == data
    assert view.pictures == 1
    view.block_threads = 128
    assert view.error == ""
    assert view.pictures == 2
    view.close()


def test_interrupts_are_not_swallowed() -> None:
    def interrupt(_: int) -> LaunchTrace:
        raise KeyboardInterrupt

    view = LaunchChart(synthetic.launch_trace(256), interrupt)
    with pytest.raises(KeyboardInterrupt):
        view.block_threads = 64
    assert view.pictures == 1  # the browser goes on
    view.close()


def test_slides_from_several_threads_leave_one_whole_picture() -> None:
    view = LaunchChart(synthetic.launch_trace(256), synthetic.launch_trace)
    sizes = [64, 128, 512, 1024]
    threads = [threading.Thread(target=setattr, args=(view, "block_threads", s)) for s in sizes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert view.pictures == len(sizes)
    assert column(view, "row").size == view.trace.block_index.size
    assert any(text.startswith(f"{view.trace.block[0]:,}") for text in heads(view))
    view.close()


def test_both_launches_carry_their_labels() -> None:
    measured = synthetic.launch_trace(provenance=synthetic.MEASURED)
    view = LaunchChart(measured, compare=synthetic.launch_trace())
    assert "Measured on NVIDIA H200" in heads(view)
    assert "Modelled on A100-SXM4-80GB" in heads(view)
    assert "beside it modelled on A100-SXM4-80GB (virtual GPU)" in view.caption
    assert "timer step 32 ns" in view.caption
    assert "measured on NVIDIA H200, beside modelled on A100-SXM4-80GB" in repr(view)
    view.close()


def test_sampled_and_empty_launches() -> None:
    trace = synthetic.launch_trace(256)
    sampled = replace(
        trace,
        sampled=4,
        **{name: getattr(trace, name)[::4] for name in ("block_index", "sm_id", "start_ns", "end_ns")},
    )
    assert Waves(sampled).wave.max() == 1
    view = LaunchChart(sampled)
    assert "Every 4th block is drawn." in view.caption
    assert view.png().startswith(b"\x89PNG")
    view.close()
    empty = replace(
        trace,
        **{name: getattr(trace, name)[:0] for name in ("block_index", "sm_id", "start_ns", "end_ns")},
    )
    view = LaunchChart(empty)
    assert view.png().startswith(b"\x89PNG")
    view.close()


def test_a_block_that_does_not_fit_is_said_so() -> None:
    trace = synthetic.launch_trace(256)
    nothing = replace(trace.occupancy, blocks_per_sm=0, warps_per_sm=0, limiters=("shared memory",))
    assert limiter_words(nothing) == "no block fits: shared memory"
    view = LaunchChart(replace(trace, occupancy=nothing))
    assert "no block fits on an SM" in repr(view)
    assert view.png().startswith(b"\x89PNG")
    view.close()


@pytest.mark.parametrize("limit", [1, 7, 12.4, 108, 1_000_000])
def test_ticks_are_round_and_inside(limit: float) -> None:
    ticks = nice_ticks(limit, 6)
    assert ticks[0] == 0
    assert 3 <= len(ticks) <= 7
    assert ticks[-1] <= limit


def test_a_launch_laid_beside_later_joins_the_picture() -> None:
    view = LaunchChart(synthetic.launch_trace(provenance=synthetic.MEASURED))
    alone = view.png()
    view.lay_beside(lambda: None)
    assert view.compare is None
    assert view.png() == alone
    predicted = synthetic.launch_trace()
    view.lay_beside(lambda: predicted)
    assert view.compare is predicted
    assert repr(view).endswith(f"beside {predicted.provenance.label}.")
    assert predicted.provenance.label in view.caption
    assert view.png() != alone


def test_an_error_of_the_launch_beside_is_shown_and_the_measurement_stays() -> None:
    trace = synthetic.launch_trace(provenance=synthetic.MEASURED)
    view = LaunchChart(trace)

    def faulty() -> LaunchTrace:
        raise RuntimeError("illegal address at line 4")

    view.lay_beside(faulty)
    assert "illegal address at line 4" in view.error
    assert view.trace is trace
