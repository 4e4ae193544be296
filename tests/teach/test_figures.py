"""Drawn pictures: labels fit the frame, and the caption describes the picture correctly."""

from __future__ import annotations

import math
import struct
from dataclasses import replace

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from gpulab.session.choose import DeviceChoice
from gpulab_course.content.n00_start import device_card, figures
from gpulab_course.content.n01_devices import figures as n01_figures
from gpulab_course.content.n02_grid import figures as n02_figures
from gpulab_course.content.n03_lanes import figures as n03_figures
from gpulab_course.content.n05_memory import figures as n05_figures
from gpulab_course.content.n10_allocator import figures as pool_figures
from gpulab_course.content.n11_graphs import figures as graph_figures
from gpulab_course.content.n11_graphs import pictures as graph_pictures
from gpulab_course.content.n13_libraries import figures as n13_figures
from gpulab_course.content.n14_random import figures as n14_figures
from gpulab_course.content.n14_random import generators
from gpulab_course.teach import picture
from virtualgpu.records import Provenance

MODELLED = Provenance("modelled", "virtual T4")


def size_of(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


@pytest.mark.parametrize(("n", "threads", "blocks", "idle"), [(10, 4, 3, 2), (8, 4, 2, 0), (1, 4, 1, 3)])
def test_numbering_counts_blocks_and_idle_threads(n: int, threads: int, blocks: int, idle: int) -> None:
    caption = repr(figures.numbering(n, threads))
    assert caption.startswith(f"{n} elements in {blocks} blocks of {threads} threads")
    assert f"{idle} threads (hatched) have no element." in caption


def test_peak_rates_are_computed_from_the_parts_of_a_gpu() -> None:
    caption = repr(n01_figures.rates_of(session.find_table_info("A100")))
    assert "108 SMs with 64 FP32 units each, so 19.5 TFLOP/s" in caption
    assert caption.endswith("5 stacks of memory with 1,024 wires each, so 2,039 GB/s.")


def test_the_picture_of_a_block_counts_the_threads_of_each_warp() -> None:
    warp_numbers = np.arange(24 * 6).reshape(6, 24) // 32
    caption = repr(n02_figures.warps_of_block(warp_numbers))
    assert caption.startswith("The threads of a block of 24 × 6")
    assert caption.endswith(" 32 in warp 0, 32 in warp 1, 32 in warp 2, 32 in warp 3, 16 in warp 4.")


def test_sectors_and_issue_slots_are_counted() -> None:
    lanes = np.arange(32)
    caption = repr(n02_figures.sectors_of_warps({"rows": lanes, "columns": lanes * 64}, cols=64))
    assert "rows: 4 sectors; columns: 32 sectors" in caption
    caption = repr(n02_figures.waiting_warps((1, 12), latency=8))
    assert all(f"issues in {busy} of 8 cycles" in caption for busy in (1, 8))
    caption = repr(n02_figures.inside_sm(session.find_table_info("A100")))
    assert "4 warp schedulers, each with 16 warp slots, 16 FP32 units" in caption


def test_pictures_are_png_with_an_alternative_text() -> None:
    bundle, metadata = figures.stacks()._repr_mimebundle_()
    assert metadata == {"image/png": {"alt": repr(figures.stacks())}, "needs_background": "light"}
    assert isinstance(bundle["image/png"], bytes)
    assert size_of(bundle["image/png"]) == (860, 430)
    assert bundle["text/plain"] == repr(figures.stacks())


def test_labels_stay_in_their_boxes_and_do_not_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    boxes = []
    picture_of = picture.Picture.of

    def measure(figure: figures.Figure, caption: str) -> picture.Picture:
        picture_ = picture_of(figure, caption)
        renderer = figure.canvas.get_renderer()
        boxes.extend(t.get_window_extent(renderer) for t in figure.axes[0].texts if t.get_text())
        return picture_

    monkeypatch.setattr(picture.Picture, "of", measure)
    monkeypatch.setattr(figures, "which_device", lambda: DeviceChoice("virtual", "T4", (7, 5)))
    figures.stacks()
    left_boxes = [box for box in boxes if box.x0 < 400]
    right = [box for box in boxes if box.x0 >= 400]
    assert (len(left_boxes), len(right)) == (11, 16)
    assert all(box.x1 < 365 for box in left_boxes)
    assert all(box.x1 < 845 for box in right)
    apart = [(first, second) for n, first in enumerate(right) for second in right[:n]]
    assert not [pair for pair in apart if pair[0].overlaps(pair[1])]


def test_the_mandelbrot_picture_names_each_escape_iteration() -> None:
    caption = repr(figures.paths({-0.5 + 0.5j: [0, -0.5 + 0.5j, -0.5], 1: [0, 1, 2]}))
    assert "with c = -0.5 + 0.5i, z stays within a distance of 0.7 for 2 iterations" in caption
    assert caption.endswith("with c = 1 + 0i, z escapes after 2 iterations.")


def test_an_enlarged_block_names_the_pixel_of_its_thread() -> None:
    picture_ = figures.blocks_of_picture(np.zeros((12, 20), np.int32), 4, (3, 1), (2, 3))
    assert repr(picture_).startswith("The picture in 5 × 3 blocks of 4 × 4 threads.")
    assert repr(picture_).endswith("its thread (2, 3) computes the pixel x = 14, y = 7.")


def test_the_small_device_card_shows_three_numbers_with_provenance() -> None:
    info = session.find_table_info("H200")
    card = device_card.SmallCard(info)
    assert [number for number, _ in card.numbers] == ["132", "140 GiB", "4,814 GB/s"]
    assert repr(card).endswith(f"; {info.provenance.label}.")
    assert "published for H200 (NVIDIA H200 datasheet" in card._repr_html_()
    assert device_card.SmallCard(replace(info, memory_bandwidth_gbps=None)).numbers[2][0] == "not known"


def test_the_minimum_traffic_counts_each_array_once() -> None:
    x = np.zeros(100, np.float32)
    y = np.zeros((5, 20), np.float64)
    assert n05_figures.least_bytes((x, y, x, np.int32(7))) == 400 + 800
    picture_ = n05_figures.traffic({"copy": 800, "turn": 6400}, {"copy": 800, "turn": 800}, MODELLED)
    assert "modelled on virtual T4" in repr(picture_)
    assert repr(picture_).endswith(": copy 1 times, turn 8 times.")


def test_a_graph_breaks_even_when_savings_exceed_capture_cost() -> None:
    gl.use_device("virtual:A100")
    cp = gl.cp
    even = graph_figures.break_even(graph_figures.launch_forty_kernels, cp.zeros(64, cp.float32))
    cost = even.capture_us + even.end_us
    saved = even.eager_us - even.launch_us
    assert (even.launches - 1) * saved < cost <= even.launches * saved
    dear = replace(even, end_us=10 * saved)
    assert dear.launches == 10 + math.ceil(even.capture_us / saved)
    assert replace(even, launch_us=even.eager_us).launches == 0


@pytest.mark.parametrize(("mode", "message"), [("global", "Unsupported"), ("relaxed", "captured")])
def test_the_capture_mode_decides_whether_the_pool_can_grow(mode: str, message: str) -> None:
    gl.use_device("virtual:A100")
    x = gl.cp.ones(64, gl.cp.float32)
    assert message in graph_figures.in_a_capture(lambda _: x + 1, mode=mode)


def test_a_kernel_starts_after_its_launch_and_the_previous_kernel() -> None:
    launches, kernels = graph_pictures.compute_launch_times(3, 6, 1)
    assert launches == [(0, 6), (6, 12), (12, 18)]
    assert kernels == [(6, 7), (12, 13), (18, 19)]
    assert graph_pictures.compute_launch_times(3, 6, 10)[1] == [(6, 16), (16, 26), (26, 36)]
    caption = repr(graph_pictures.launches_and_kernels(6, 1, 10))
    assert "Kernels of 1 µs start 6 µs apart: a gap of 5 µs before each kernel." in caption
    assert caption.endswith("Kernels of 10 µs start 10 µs apart: no gaps.")


def _model(batch: gl.cp.ndarray) -> gl.cp.ndarray:
    return gl.cp.maximum(batch * 2, 0) + 1


def test_a_graph_node_reads_the_captured_address_or_a_static_buffer() -> None:
    gl.use_device("virtual:A100")
    batches = gl.cp.ones((2, 1024), gl.cp.float32)
    renamed = gl.graph(_model, batches[0]).record
    buffered = gl.graph(_model, gl.cp.empty(1024, gl.cp.float32))
    caption = repr(graph_pictures.static_buffer(renamed, buffered.record, batches))
    assert f"still reads 0x…{batches.data.ptr & 0xFFFFF:05x}, the address of the first batch." in caption
    address = buffered.arrays[0].data.ptr
    assert caption.endswith(f"into a static buffer at 0x…{address & 0xFFFFF:05x}, which the node reads.")


def test_a_second_graph_reuses_pool_blocks_of_the_first() -> None:
    gl.use_device("virtual:A100")
    batch = gl.cp.ones(1 << 16, gl.cp.float32)
    first = gl.graph(_model, batch)
    second = gl.graph(_model, batch, pool=first.pool)
    (_, source, a), (_, a_again, b), (_, b_again, out) = graph_pictures.list_node_accesses(first.record)
    assert source == batch.data.ptr
    assert (a_again, b_again) == (a, b)
    assert out == a == first.result.data.ptr
    steps = [(name, written) for name, _, written in graph_pictures.list_node_accesses(second.record)]
    assert steps[0] == ("multiply", b)
    assert steps[1][1] not in (a, b)
    assert steps[2] == ("add", b)
    caption = repr(graph_pictures.blocks_of_pool(first.record, second.record))
    assert caption.startswith(
        "3 pool blocks. Graph 1 writes pool block A (multiply), then pool block B (maxim"
    )
    assert caption.endswith("pool block C (maximum), then pool block B (add), which is its output.")


def test_settings_change_the_reserved_memory_of_pytorch() -> None:
    gl.use_device("virtual:A100")
    gl.cp.get_default_memory_pool().free_all_blocks()
    mib = 1 << 20
    with gl.allocator() as trace:
        for size in (21, 23, 25, 27, 64):
            gl.cp.empty(size * mib, dtype=gl.cp.uint8)
        arrays = [gl.cp.empty(size * mib, dtype=gl.cp.uint8) for size in (30, 64)]
        del arrays
    better = {"expandable_segments": True}, {"max_split_size_mb": 32}, {"roundup_power2_divisions": 4}
    plain, *others = (
        trace.replayed("PyTorch", **settings).statistics().nested()["reserved_bytes"]["all"]["peak"]
        for settings in ({}, *better)
    )
    assert max(others) < plain
    text = pool_figures.with_settings(trace, *better)
    assert all(f"{size >> 20:,} MiB" in text for size in (plain, *others))


def test_the_bit_picture_shows_a_number_in_each_format() -> None:
    caption = repr(n13_figures.format_bits(6.5))
    assert "FP16 has exponent 10001, fraction 1010000000, and is 6.5" in caption
    assert "TF32 has exponent 10000001, fraction 1010000000 and 13 bits that are not used" in caption
    assert caption.endswith("FP8 E5M2 has exponent 10001, fraction 10, and is 6.")


def test_the_order_of_block_sums_changes_the_total() -> None:
    orders = [(0, 2, 1), (0, 1, 2)]
    picture_ = n14_figures.orders_of_addition([3, 1, 4, 1, 5, 9, 2, 6], [1e8, 1, -1e8], orders)
    caption = repr(picture_)
    assert caption.startswith("A tree in a block adds 3 1 4 1 5 9 2 6, then 8 10 6 7, then 14 17, then 31.")
    assert "in the order 0, 2, 1 the totals are 100,000,000, 0, 1;" in caption
    assert caption.endswith("in the order 0, 1, 2 the totals are 100,000,000, 100,000,000, 0.")


def test_the_picture_of_philox_computes_one_round() -> None:
    key = 7 | 9 << 32
    (expected,) = generators.philox_words(key, 5 | 6 << 32, 1, rounds=1)
    words = ", ".join(f"{name} = {word:08x}" for name, word in zip("xyzw", expected, strict=True))
    assert repr(n14_figures.philox_round((5, 6, 0, 0), (7, 9))).endswith(f"{words}.")


def test_the_picture_of_points_counts_points_in_the_circle() -> None:
    points = np.array([[0.1, 0.1], [0.9, 0.9], [0.5, 0.5], [0.1, 0.1]], np.float32)
    caption = repr(n14_figures.circle_points({"four": points}))
    assert caption.endswith("four: 3 different points, 75.0% inside the circle.")


def test_the_picture_of_a_shuffle_sum_shows_steps_and_result() -> None:
    values = np.array([[1, 2, 3, 4], [4, 6, 6, 8], [10, 12, 12, 16]])
    caption = repr(n03_figures.shuffle_sum(values))
    assert caption.startswith("The sum of 4 lanes in 2 steps")
    assert "lane 0 has 10" in caption


def test_the_sector_map_counts_the_sectors_of_a_request() -> None:
    lanes = np.arange(32)
    requests = {
        "neighbours": lanes,
        "an offset": lanes + 1,
        "reversed": 31 - lanes,
        "a stride of 9": 9 * lanes,
    }
    caption = repr(n05_figures.sector_map(requests))
    assert caption.endswith(": 4 for neighbours, 5 for an offset, 4 for reversed, 32 for a stride of 9.")
