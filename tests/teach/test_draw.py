"""Random inputs for kernel tests: sizes, block shapes, numbers and initial output values."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

from gpulab_course.teach.judge import draw
from gpulab_course.teach.judge.draw import DataGenerator

F32 = np.float32


def test_cost_launches_accept_any_set_of_block_shapes() -> None:
    for only in ((64, 1, 1), (3, 1, 1)):
        assert [block for _, block in draw.draw_cost_launches(10, [only], np.random.default_rng(0))] == [
            only,
            only,
        ]
    pair = [(64, 1, 1), (64, 1, 1), (96, 1, 1)]
    blocks = {block for _, block in draw.draw_cost_launches(10, pair, np.random.default_rng(0))}
    assert blocks == {pair[0], pair[2]}


def test_integers_match_the_requested_kind_of_data() -> None:
    counts = {
        len(set(DataGenerator(seed, draw.DUPLICATE_VALUES).integers(500).tolist())) for seed in range(20)
    }
    assert max(counts) == 3
    numbers = DataGenerator(1, draw.EXTREME_VALUES).integers(4_000, -50, 51)
    for end in (-50, 50):
        assert (numbers == end).mean() == pytest.approx(0.255, abs=0.03)
    assert len(set(numbers.tolist())) == 101
    whole = DataGenerator(3).integer_floats(4000)
    assert (whole.dtype, whole.min(), whole.max()) == (F32, -8, 8)
    numbers = DataGenerator(3).integers(60_000)
    assert (numbers.dtype, numbers.min(), numbers.max()) == (np.int32, -1000, 999)


@pytest.mark.parametrize("seed", range(8))
def test_sizes_include_the_usual_edge_cases(seed: int) -> None:
    rng = np.random.default_rng(seed)
    at_once = 20_480
    numbers, *sizes = draw.draw_lengths(rng, at_once)
    assert numbers((96, 1, 1)) == 384
    assert {0, 1, 31, 32, 33, 100_000} <= set(sizes)
    powers = {size for size in sizes if size > 33 and not size & (size - 1)}
    assert powers
    assert all({size - 1, size + 1} <= set(sizes) for size in powers)
    assert {size % 4 for size in sizes} == {0, 1, 2, 3}
    assert 2 * at_once < max(size for size in sizes if size != 100_000) < 3 * at_once
    assert 0 not in draw.draw_nonzero_lengths(rng, at_once)

    wide, line, high, square, floats_, most = draw.draw_plane_blocks(rng)
    assert (floats_, most) == ((1, 1, 1), (32, 32, 1))
    assert wide[0] >= 20 > high[0]
    assert high[1] >= 17 > wide[1]
    assert (line[1], square[0] == square[1]) == (1, True)
    assert 32 < line[0] <= 64
    assert {z for _, _, z in (wide, line, high, square)} == {1}

    tiles, *shapes = draw.draw_matrix_sizes(rng, at_once)
    assert tiles((32, 8, 1)) == (16, 96)
    assert {(1, 1), (1, 33), (33, 1), (32, 32), (31, 33), (257, 65)} <= set(shapes)
    assert all(rows > 0 and columns > 0 for rows, columns in shapes)
    assert any(rows == 1 and columns > 1024 for rows, columns in shapes)
    assert any(rows > 256 and columns == 2 for rows, columns in shapes)
    assert {rows > columns for rows, columns in shapes if max(rows, columns) > 1 << 16} == {False, True}
    assert 2 * at_once < max(rows * columns for rows, columns in shapes)


def test_half_of_any_integers_are_small() -> None:
    some = DataGenerator(3).any_integers((4000,))
    assert some.dtype == np.int32
    assert (np.abs(some.astype(np.int64)) < 9).mean() == pytest.approx(0.5, abs=0.05)
    assert (some < -(1 << 30)).any()
    assert (some > 1 << 30).any()


def test_subnormal_values_are_drawn_only_for_copying_kernels() -> None:
    moved = DataGenerator(5, draw.EXTREME_VALUES).floats((20_000,), is_only_copied=True)
    smallest = np.finfo(np.float32).smallest_normal
    assert ((moved != 0) & (np.abs(moved) < smallest)).any()
    assert ((np.abs(moved) >= smallest) & (np.abs(moved) < 2 * smallest)).any()  # and the least normals
    computed = DataGenerator(5, draw.EXTREME_VALUES).floats((20_000,))
    assert not ((computed != 0) & (np.abs(computed) < smallest)).any()


def test_floats_match_the_requested_kind_of_data() -> None:
    def floats(kind: str, **options: Any) -> Any:
        return DataGenerator(3, kind).floats((4000,), **options)

    plain = floats(draw.RANDOM_VALUES)
    assert plain.dtype == F32
    assert abs(plain.mean()) < 0.1
    assert abs(plain.std() - 1) < 0.1
    assert set(floats(draw.DUPLICATE_VALUES).tolist()) <= set(range(-6, 7))
    extreme = set(np.array((3e-15, -3e-15, 16777215.0, -3e9, 1e37, -1e37), F32).tolist())
    for kind, values in (
        (draw.ZERO_VALUES, {0.0}),
        (draw.INFINITE_VALUES, {np.inf, -np.inf}),
        (draw.EXTREME_VALUES, extreme),
    ):
        numbers_ = floats(kind)
        special = [n for n in numbers_.tolist() if n in values]
        assert set(special) == values
        assert 0.17 < len(special) / 4000 < 0.23
    assert np.signbit(floats(draw.ZERO_VALUES)[floats(draw.ZERO_VALUES) == 0]).any()
    assert 0.17 < np.isnan(floats(draw.NAN_VALUES)).mean() < 0.23
    data = DataGenerator(1)
    assert (data.has_special_values, data.integer_floats(4).size, data.has_special_values) == (
        False,
        4,
        False,
    )
    assert data.floats((2, 2), np.float64).dtype == np.float64
    assert data.has_special_values


def test_initial_output_values_differ_between_launches() -> None:
    floats = [draw.draw_garbage(seed, (500,), F32) for seed in range(6)]
    assert [bool(np.isnan(floats_).all()) for floats_ in floats] == [False, False, True] * 2
    assert 800 < floats[0].std() < 1200
    assert floats[0].tolist() != floats[1].tolist()
    numbers = draw.draw_garbage(2, (5000,), np.int64)
    assert (numbers.dtype, numbers.min(), numbers.max()) == (np.int64, 1, 99)


def test_every_size_is_launched_with_suitable_blocks() -> None:
    blocks = [(n, 1, 1) for n in (256, 128, 96, 64, 32, 1)]
    sizes = [draw.count_four_blocks, 0, 33, 34, 5000, 5001, 9000]
    plan = draw.pair_sizes_with_blocks(sizes, blocks)

    def of(size: int) -> list[int]:
        return [block[0] for n, block in plan if n == size]

    assert plan[:6] == [(4 * block[0], block) for block in blocks]
    assert of(0) == of(33) == [256, 128, 96, 64, 32, 1]  # the smallest size is run with each block shape
    assert of(34) == [64, 32, 1, 256]
    assert of(5000) == [32, 256, 128, 96]  # a block of one thread would need more than 600
    assert of(5001) == [256]
    assert of(9000) == [128]
    assert [size for size, _ in draw.pair_sizes_with_blocks([(70, 70), (80, 70)], blocks[:2])] == [
        (70, 70)
    ] * 2 + [(80, 70)]
    assert draw.pair_sizes_with_blocks([600, 601], [(1, 1, 1), (64, 1, 1)])[0] == (600, (1, 1, 1))
    assert [block for size, block in draw.pair_sizes_with_blocks([601], [(1, 1, 1), (64, 1, 1)])] == [
        (64, 1, 1)
    ]
    assert [block for size, block in draw.pair_sizes_with_blocks([601], [(1, 1, 1)])] == [
        (1, 1, 1)
    ]  # if no block shape is suitable
    assert [size for size, _ in draw.pair_sizes_with_blocks([11, 10], blocks[:2], max_small_elements=10)] == [
        11,
        10,
        10,
    ]
    assert draw.measure_six_tiles((32, 8, 1)) == (16, 96)
    assert [draw.count_blocks(n, 32) for n in (0, 1, 32, 33, 64)] == [1, 1, 1, 2, 2]


@pytest.mark.parametrize("seed", range(8))
def test_block_shapes_and_cost_launches_are_within_bounds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    floats_, two, short, odd, counts, single, most = (block[0] for block in draw.draw_line_blocks(rng))
    assert (odd, single, most) == (33, 1, 1024)
    assert 65 <= floats_ < 240 < two < 640
    assert short % 32 == 31
    assert 63 <= short <= 191
    assert 2 <= counts < 31
    warps = [block[0] // 32 for block in draw.draw_warp_blocks(rng)]
    assert {1, 2, 32} < set(warps)
    for n, low, high in zip(warps, (3, 6, 12), (6, 12, 25), strict=False):
        assert low <= n < high
    assert {block[0] % 128 for block in draw.draw_warp_blocks(rng, 4)} == {0}
    assert min(block[0] for block in draw.draw_warp_blocks(rng, 4)) == 128
    blocks = [*draw.draw_plane_blocks(rng), (32, 2, 1), (19, 3, 1), (47, 1, 1), (20, 3, 1)]
    (small, first), (large, second) = draw.draw_cost_launches(10_000, blocks, np.random.default_rng(seed))
    assert 1500 <= small <= 4001
    assert 11_000 <= large <= 15_001
    assert small % 2 == large % 2 == 1
    for block in (first, second):
        assert block[0] >= 20
        assert prod(block) >= 48
    assert prod(first) % 32
    assert first != second
    (sides, _), (wide, _) = draw.draw_cost_launches((100, 200), blocks, np.random.default_rng(seed))
    assert 40 <= sides[0] <= 81
    assert 80 <= sides[1] <= 161
    assert 110 <= wide[0] <= 151
    assert 220 <= wide[1] <= 301
    only = draw.draw_cost_launches(100, [(8, 1, 1)], np.random.default_rng(seed))
    assert [block for _, block in only] == [(8, 1, 1)] * 2
