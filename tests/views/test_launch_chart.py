"""Waves, slots and the slider of the launch chart."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpulab.views import LaunchChart
from gpulab.views._waves import Waves, describe_limiters
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


def test_waves_and_tail_follow_from_the_resident_blocks() -> None:
    waves = Waves(synthetic.launch_trace(256))
    per_wave = 6 * 108
    assert waves.trace.blocks_per_wave == per_wave
    assert (waves.full_waves, waves.tail_blocks) == divmod(977, per_wave)
    assert waves.wave.tolist() == [i // per_wave for i in range(977)]
    assert waves.in_tail.sum() == 977 - per_wave
    assert waves.describe_waves() == "1 full wave and a tail of 329 blocks (51 % full)"


def test_full_waves_have_no_tail_and_small_grids_no_full_wave() -> None:
    assert not Waves(synthetic.launch_trace(blocks=1296)).in_tail.any()
    assert Waves(synthetic.launch_trace(blocks=1296)).describe_waves() == "2 full waves"
    assert Waves(synthetic.launch_trace(blocks=40)).describe_waves() == (
        "less than one wave (6 % of the blocks that fit at once)"
    )


def test_blocks_in_one_slot_never_overlap() -> None:
    waves = Waves(synthetic.launch_trace(256))
    trace = waves.trace
    order = waves.order
    assert waves.slot.max() < trace.occupancy.blocks_per_sm
    for sm in range(0, 108, 9):
        for slot in range(6):
            rows = order[(trace.sm_id[order] == sm) & (waves.slot == slot)]
            assert (trace.start_ns[rows][1:] >= trace.end_ns[rows][:-1]).all()


def test_the_slider_runs_another_launch() -> None:
    sizes: list[int] = []

    def at_block_size(threads: int) -> LaunchTrace:
        sizes.append(threads)
        return synthetic.launch_trace(threads)

    view = LaunchChart(synthetic.launch_trace(256), at_block_size)
    assert [box["trait"] for box in view.controls] == ["block_threads"]
    assert view.block_threads == 256
    before = repr(view)
    view.block_threads = 512
    assert sizes == [512]
    assert view.pictures == 1
    assert any(text.startswith("512 threads per block: ") for text in heads(view))
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
        "The launch with 1,024 threads per block failed. ValueError: too many resources requested for launch"
    )
    assert view.failed == "failed: ValueError; still showing 256 threads"
    assert view.data == data
    assert view.pictures == 1
    view.block_threads = 128
    assert view.error == view.failed == ""
    assert view.pictures == 2
    view.close()


def test_a_closed_view_keeps_no_reference_to_the_launcher() -> None:
    class Launcher:
        def __call__(self, threads: int) -> LaunchTrace:
            return synthetic.launch_trace(threads)

    launcher = Launcher()
    gone = weakref.ref(launcher)
    view = LaunchChart(synthetic.launch_trace(256), launcher)
    del launcher
    assert gone() is not None
    view.close()  # the notebook's history holds it all the same
    assert gone() is None
    assert "Launch of kernel" in repr(view)


def test_interrupts_are_not_swallowed() -> None:
    def interrupt(_: int) -> LaunchTrace:
        raise KeyboardInterrupt

    view = LaunchChart(synthetic.launch_trace(256), interrupt)
    with pytest.raises(KeyboardInterrupt):
        view.block_threads = 64
    assert view.pictures == 1  # the browser goes on
    view.close()


def test_a_note_gives_the_fixed_block_size_of_the_second_launch() -> None:
    other = synthetic.launch_trace(256, provenance=synthetic.MEASURED)
    view = LaunchChart(synthetic.launch_trace(256), synthetic.launch_trace, beside=other)
    view.block_threads = 512
    (note,) = (text for text in heads(view) if "slider" in text)
    assert "256 threads" in note
    view.close()
    without_slider = LaunchChart(synthetic.launch_trace(256), beside=other)
    assert not any("slider" in text for text in heads(without_slider))
    without_slider.close()


def legends(view: LaunchChart) -> list[str]:
    return [text for box in boxes(view.scene, "legend") for _, text in box["entries"]]


def test_sampled_blocks_are_drawn_over_the_busy_time_of_each_sm() -> None:
    """The drawn busy time of each SM equals the record, including pauses."""
    trace = synthetic.wide_launch(200_000)
    late = trace.sm_id % 2 == 1  # these SMs pause in the middle
    pause_ns = np.where(late & (trace.block_index >= 100_000), 300_000, 0)
    trace = replace(trace, start_ns=trace.start_ns + pause_ns, end_ns=trace.end_ns + pause_ns)
    view = LaunchChart(trace)
    assert "busy (1 of 4 blocks is drawn, on every SM)" in legends(view)
    spans = blocks(view)
    assert column(view, "row").size <= 65_536 + 108
    assert set(column(view, "row").tolist()) == set(range(108))
    busy = {}
    for name in ("row", "x0", "x1"):
        code, offset, length = spans["busy"][name]["$"]
        busy[name] = np.frombuffer(view.data, np.dtype(f"<{code}"), length, offset)
    busy_ns = np.bincount(busy["row"], busy["x1"] - busy["x0"])
    assert busy_ns == pytest.approx(trace.sm_busy_ns, rel=0.01)
    assert (busy_ns[1::2].max(), busy_ns[::2].max()) == pytest.approx(
        (busy_ns.max(), busy_ns.max()), rel=0.01
    )
    assert np.bincount(busy["row"])[:2].tolist() == [1, 2], "the pause is there, and on every second SM only"
    view.close()
    half = LaunchChart(synthetic.wide_launch(100_000))
    assert "busy (1 of 2 blocks is drawn, on every SM)" in legends(half)
    half.close()
    small = LaunchChart(synthetic.wide_launch(60_000))
    assert blocks(small)["busy"] is None
    assert not any("drawn" in text for text in legends(small))
    small.close()


def test_few_busy_sms_have_high_rows_and_idle_sms_a_note() -> None:
    view = LaunchChart(synthetic.launch_trace(blocks=4))
    spans = blocks(view)
    assert (spans["rows"], spans["row_names"]) == (4, ["SM 0", "SM 1", "SM 2", "SM 3"])
    assert spans["height"] / spans["rows"] >= 20
    assert spans["lanes"] == 1
    texts = [text for item in boxes(view.scene, "plot")[0]["items"] for text in item.get("text", [])]
    assert "104 SMs idle: they got no block" in texts
    view.close()
    full = LaunchChart(synthetic.launch_trace())
    assert blocks(full)["rows"] == 108
    assert not any("idle" in str(item.get("text")) for item in boxes(full.scene, "plot")[0]["items"])
    full.close()


def test_multidimensional_blocks_are_labelled_by_their_indices() -> None:
    trace = replace(synthetic.launch_trace(blocks=12), grid=(4, 3, 1), block=(16, 16, 1))
    view = LaunchChart(trace)
    spans = blocks(view)
    assert spans["written"] == ["(", ["block_x"], ", ", ["block_y"], ")"]
    order = view.waves.order
    index = trace.block_index[order]
    assert column(view, "block_x").tolist() == (index % 4).tolist()
    assert column(view, "block_y").tolist() == (index // 4).tolist()
    assert "There is no slider for the block size" in view.caption
    view.close()
    plain = LaunchChart(synthetic.launch_trace(blocks=12))
    assert blocks(plain)["written"] == [["block_x"]]
    assert "No slider" not in plain.caption
    plain.close()
    deep = LaunchChart(replace(synthetic.launch_trace(blocks=12), grid=(2, 1, 6)))
    assert blocks(deep)["written"] == ["(", ["block_x"], ", ", ["block_y"], ", ", ["block_z"], ")"]
    assert column(deep, "block_z").max() == 5
    deep.close()


def test_blocks_too_short_to_fill_the_sms_are_reported() -> None:
    """Blocks end before enough others start, so the SMs never reach their occupancy."""
    trace = synthetic.wide_launch(6_480)
    slow = replace(trace, start_ns=trace.block_index * 10, end_ns=trace.block_index * 10 + 1_000)
    view = LaunchChart(slow)
    assert any("At most 100 ran at once, because blocks ended before others" in text for text in heads(view))
    view.close()
    view = LaunchChart(trace)
    assert not any("ran at once" in text for text in heads(view))
    view.close()


def test_a_launch_whose_block_does_not_fit_has_a_message() -> None:
    trace = synthetic.launch_trace(256)
    nothing = replace(trace.occupancy, blocks_per_sm=0, warps_per_sm=0, limiters=("shared memory",))
    assert describe_limiters(nothing) == "no block fits: shared memory"
    view = LaunchChart(replace(trace, occupancy=nothing))
    assert "no block fits on an SM" in repr(view)
    assert view.png().startswith(b"\x89PNG")
    view.close()


def test_a_second_launch_can_be_added_later() -> None:
    view = LaunchChart(synthetic.launch_trace(provenance=synthetic.MEASURED))
    alone = view.png()
    view.compare(lambda: None)
    assert view.other is None
    assert view.png() == alone
    predicted = synthetic.launch_trace()
    view.compare(lambda: predicted)
    assert view.other is predicted
    assert repr(view).endswith(f"compared with a launch {predicted.provenance.label}.")
    assert predicted.provenance.label in view.caption
    assert view.png() != alone


def test_an_error_of_the_second_launch_keeps_the_first_trace() -> None:
    trace = synthetic.launch_trace(provenance=synthetic.MEASURED)
    view = LaunchChart(trace)

    def faulty() -> LaunchTrace:
        raise RuntimeError("illegal address at line 4")

    view.compare(faulty)
    assert "illegal address at line 4" in view.error
    assert view.trace is trace
