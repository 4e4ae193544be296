"""What is drawn to try a kernel with, at both ends: by generators that always draw the least, or the most."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpulab_course.teach.judge import draw


class End:
    """Stands for a generator, and draws the least or the most of what it may."""

    def __init__(self, most: bool) -> None:
        self.most = most

    def integers(self, low: int, high: int | None = None, size: Any = None) -> Any:
        low, high = (0, low) if high is None else (low, high)
        drawn = high - 1 if self.most else low
        return drawn if size is None else np.full(size, drawn)

    def uniform(self, low: float, high: float) -> float:
        return high if self.most else low

    def random(self, shape: Any) -> Any:
        return np.full(shape, 1 - 1e-9 if self.most else 0.0)

    def choice(self, among: Any, size: Any) -> Any:
        return np.full(size, among[-1 if self.most else 0])


LEAST: Any = End(False)
MOST: Any = End(True)
AT_ONCE = 1_000


def test_lengths() -> None:
    for rng, drawn in (
        (LEAST, [63, 64, 65, 511, 513, 82, 1_001, 100_000, 2_999]),
        (MOST, [255, 256, 257, 4_095, 4_097, 798, 4_799, 100_000, 2_001]),
    ):
        whole, *others = draw.lengths(rng, AT_ONCE)
        assert whole((96, 2, 1)) == 384
        assert others == [1, 0, 31, 32, 33, *drawn]
        assert draw.some_lengths(rng, AT_ONCE) == [whole, 1, *others[2:]]


def test_matrices() -> None:
    small = [(1, 1), (1, 33), (33, 1), (32, 32), (31, 33)]
    for rng, n, drawn in (
        (LEAST, 2, [(1, 1_025), (300, 2), (257, 65), (1, 65_600), (65_600, 1)]),
        (MOST, 69, [(1, 1_399), (899, 2), (257, 65), (1, 67_999), (67_999, 1)]),
    ):
        tiles, *others = draw.matrices(rng, AT_ONCE)
        assert tiles((32, 8, 1)) == (16, 96)
        assert others == [*small, (n, 64), (64, n), (n, n), *drawn, (49, 57)]


def test_blocks_in_a_line() -> None:
    assert [x for x, _, _ in draw.lines(LEAST)] == [65, 241, 63, 33, 2, 1, 1_024]
    assert [x for x, _, _ in draw.lines(MOST)] == [239, 639, 191, 33, 30, 1, 1_024]
    assert {block[1:] for block in [*draw.lines(MOST), *draw.whole_warps(MOST)]} == {(1, 1)}


@pytest.mark.parametrize(
    ("rng", "warps", "counts"),
    [
        (LEAST, 1, [3, 6, 12, 1, 2, 32]),
        (MOST, 1, [5, 11, 24, 1, 2, 32]),
        (LEAST, 2, [2, 6, 12, 32]),
        (LEAST, 4, [4, 12, 32]),
        (MOST, 4, [4, 8, 24, 32]),
    ],
)
def test_blocks_of_whole_warps(rng: Any, warps: int, counts: list[int]) -> None:
    assert [x / 32 for x, _, _ in draw.whole_warps(rng, warps)] == counts


def test_blocks_of_two_dimensions() -> None:
    last = [(1, 1, 1), (32, 32, 1)]
    assert draw.planes(LEAST) == [(20, 2, 1), (33, 1, 1), (3, 17, 1), (6, 6, 1), *last]
    assert draw.planes(MOST) == [(63, 7, 1), (64, 1, 1), (8, 39, 1), (19, 19, 1), *last]


BLOCKS = [(19, 4, 1), (47, 1, 1), (48, 1, 1), (20, 3, 1), (64, 1, 1)]


@pytest.mark.parametrize(
    ("size", "rng", "launches"),
    [
        (1_000, LEAST, [(151, (48, 1, 1)), (1_101, (20, 3, 1))]),
        (1_000, MOST, [(401, (20, 3, 1)), (1_501, (64, 1, 1))]),
        ((100, 200), LEAST, [((41, 81), (48, 1, 1)), ((111, 221), (20, 3, 1))]),
        ((100, 200), MOST, [((81, 161), (20, 3, 1)), ((151, 301), (64, 1, 1))]),
    ],
)
def test_costs_are_counted_in_a_smaller_and_a_larger_launch(size: Any, rng: Any, launches: list[Any]) -> None:
    assert draw.cost_launches(size, BLOCKS, rng) == launches


def test_costs_are_counted_with_whatever_blocks_there_are() -> None:
    for only in ((64, 1, 1), (3, 1, 1)):
        assert [block for _, block in draw.cost_launches(10, [only], LEAST)] == [only, only]
    pair = [(64, 1, 1), (64, 1, 1), (96, 1, 1)]
    assert [block for _, block in draw.cost_launches(10, pair, LEAST)] == [pair[0], pair[2]]


def drawn(kind: str, rng: Any) -> draw.Draw:
    """Data of one kind by an end of a generator."""
    data = draw.Draw(0, kind)
    data.rng = rng
    return data


def test_whole_numbers_stay_within_their_ends() -> None:
    for kind in (draw.RANDOM, draw.EXTREME, draw.DUPLICATES):
        for rng, whole, integers in ((LEAST, -8, -1_000), (MOST, 8, 999)):
            assert drawn(kind, rng).whole(3).tolist() == [whole] * 3
            assert drawn(kind, rng).integers(3).tolist() == [integers] * 3
            assert drawn(kind, rng).integers((2, 1), 4, 6).tolist() == [[4 if rng is LEAST else 5]] * 2
    assert drawn(draw.RANDOM, MOST).any_integers(2).tolist() == [(1 << 31) - 1] * 2
    assert drawn(draw.RANDOM, LEAST).any_integers(2).tolist() == [-(1 << 31) % 9] * 2
    assert drawn(draw.RANDOM, LEAST).whole(1).dtype == np.float32
    assert drawn(draw.RANDOM, LEAST).integers(1).dtype == np.int32


def test_few_values_are_three_at_most_and_extreme_ones_come_half_of_the_time() -> None:
    few = {len(set(draw.Draw(seed, draw.DUPLICATES).integers(500).tolist())) for seed in range(20)}
    assert max(few) == 3
    numbers = draw.Draw(1, draw.EXTREME).integers(4_000, -50, 51)
    for end in (-50, 50):
        assert (numbers == end).mean() == pytest.approx(0.255, abs=0.03)
    assert len(set(numbers.tolist())) == 101


def test_special_floats_come_a_fifth_of_the_time_and_only_of_their_kind() -> None:
    for kind, values in (
        (draw.ZEROS, {"0.0", "-0.0"}),
        (draw.INFINITE, {"inf", "-inf"}),
        (draw.NAN, {"nan"}),
        (draw.EXTREME, {"3e-15", "-3e-15", "16777215.0", "-3000000000.0", "1e+37", "-1e+37"}),
    ):
        data = draw.Draw(1, kind)
        assert not data.special
        shown = [str(float(value)) for value in data.floats(4_000, np.float64)]
        assert data.special
        found = [value for value in shown if value in values]
        assert set(found) == values
        assert len(found) / len(shown) == pytest.approx(0.2, abs=0.03)
        assert shown[:30] == [str(float(v)) for v in draw.Draw(1, kind).floats(4_000, np.float64)][:30]
    whole = draw.Draw(1, draw.DUPLICATES).floats(2_000)
    assert len(set(whole.tolist())) < 12
    assert draw.Draw(1).floats((2, 3)).shape == (2, 3)


def test_a_seed_is_of_the_text() -> None:
    assert (draw.seed_of(""), draw.seed_of("a")) == (0, 0xE8B7BE43)
