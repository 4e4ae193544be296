"""Launch shapes and arguments as learners write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpulab.session.arguments import arguments, byte_count, dims, is_one_dimensional, resized, warp_position


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, (7, 1, 1)),
        ((7,), (7, 1, 1)),
        ([2, 3], (2, 3, 1)),
        ((2, 3, 4), (2, 3, 4)),
        (np.int64(5), (5, 1, 1)),
    ],
)
def test_shapes(value: Any, expected: tuple[int, int, int]) -> None:
    assert dims("grid", value) == expected


@pytest.mark.parametrize(
    ("value", "error", "says"),
    [
        (3.5, TypeError, "divide with //"),
        ((1, 2.0), TypeError, "divide with //"),
        ("256", TypeError, "not '256'"),
        (None, TypeError, "not None"),
        (0, ValueError, "at least 1"),
        ((4, -1), ValueError, "at least 1"),
        ((), ValueError, "one to three dimensions, not 0"),
        ((1, 1, 1, 1), ValueError, "one to three dimensions, not 4"),
    ],
)
def test_shapes_that_make_no_sense(value: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error) as caught:
        dims("grid", value)
    assert says in str(caught.value)
    assert "`grid`" in str(caught.value)


def test_arguments_are_a_tuple() -> None:
    assert arguments([1, 2]) == (1, 2)
    with pytest.raises(TypeError, match=r"even of one: \(x,\). Got ndarray"):
        arguments(np.zeros(3))


def test_byte_count() -> None:
    assert byte_count(4096) == 4096
    with pytest.raises(ValueError, match="shared_bytes"):
        byte_count(-1)


def test_warp_position_is_checked_against_the_launch() -> None:
    assert warp_position((4, 2, 1), (100, 1, 1), (3, 1), 3) == ((3, 1, 0), 3)
    assert warp_position((4, 1, 1), (32, 1, 1), 2, 0) == ((2, 0, 0), 0)
    with pytest.raises(ValueError, match=r"the last block is \(3, 1, 0\)"):
        warp_position((4, 2, 1), (100, 1, 1), (4, 0), 0)
    with pytest.raises(ValueError, match="warps are 0 to 3"):
        warp_position((4, 2, 1), (100, 1, 1), (0, 0), 4)
    with pytest.raises(ValueError, match="the only warp is 0"):
        warp_position((4, 2, 1), (32, 1, 1), 0, -1)


@pytest.mark.parametrize("threads", [32, 96, 256, 1024])
def test_another_block_size_covers_the_same_threads(threads: int) -> None:
    (blocks, *_), block, shared = resized((1000, 1, 1), (256, 1, 1), 1024, threads)
    assert block == (threads, 1, 1)
    assert (blocks - 1) * threads < 256_000 <= blocks * threads
    assert shared == max(1024, 4 * threads), "4 bytes a thread, never less than asked for"


def test_only_one_dimensional_launches_are_resized() -> None:
    assert is_one_dimensional((9, 1, 1), (64, 1, 1))
    assert not is_one_dimensional((9, 2, 1), (64, 1, 1))
    assert not is_one_dimensional((9, 1, 1), (8, 8, 1))
