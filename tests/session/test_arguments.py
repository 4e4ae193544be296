"""Launch shapes and arguments as learners write them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpulab.session import arguments, calls
from virtualgpu.errors import ArgumentWarning, GpulabError
from virtualgpu.launch.launch import Launch, dims
from virtualgpu.records import KernelSource

KERNEL = KernelSource("k", 'extern "C" __global__ void k() {}')


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
    ("value", "error", "message"),
    [
        (3.5, TypeError, "Divide with //"),
        ((1, 2.0), TypeError, "Divide with //"),
        ("256", TypeError, "not '256'"),
        (None, TypeError, "not None"),
        (0, ValueError, "at least 1"),
        ((4, -1), ValueError, "at least 1"),
        ((), ValueError, "has 0 dimensions"),
        ((1, 1, 1, 1), ValueError, "has 4 dimensions"),
    ],
)
def test_wrong_shapes_are_named(value: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"`grid`.*{message}"):
        dims("grid", value)


def test_arguments_are_a_tuple() -> None:
    assert Launch.of(KERNEL, 1, 1, [1, 2]).args == (1, 2)
    for read in (Launch.of, Launch.as_cupy):
        with pytest.raises(TypeError, match=r"got ndarray. A tuple with a single argument is written \(x,\)"):
            read(KERNEL, (1,), (1,), np.zeros(3), 0)


def test_shared_mem_must_be_a_nonnegative_number() -> None:
    assert Launch.of(KERNEL, 1, 1, shared_mem=4096).shared_bytes == 4096
    with pytest.raises(ValueError, match=r"`shared_mem` .* at least 0"):
        Launch.of(KERNEL, 1, 1, shared_mem=-1)
    with pytest.raises(TypeError, match="`shared_mem` must be a number of bytes"):
        Launch.of(KERNEL, 1, 1, shared_mem=(64,))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="shared_mem"):
        Launch.as_cupy(KERNEL, (1,), (1,), (), -1)


def test_a_launch_counts_threads_and_needs_a_kernel_with_source() -> None:
    launch = Launch.of(KERNEL, 2, (3, 4))
    assert (launch.threads, launch.block_threads) == (24, 12)
    with pytest.raises(TypeError, match="has no CUDA C"):
        Launch.of(len, 1, 1)


def test_as_cupy_needs_tuples_and_treats_sizes_below_1_as_1() -> None:
    with pytest.warns(ArgumentWarning, match=r"`(grid|block)` is \((0, 5|-3,)\)\. As with CuPy") as warned:
        launch = Launch.as_cupy(KERNEL, (0, 5), (-3,), (), 0)
    assert len(warned) == 2
    assert (launch.grid, launch.block) == ((1, 5, 1), (1, 1, 1))
    with pytest.raises(TypeError, match="expected tuple, got list"):
        Launch.as_cupy(KERNEL, [1], (1,), (), 0)


def test_warp_position_is_checked_against_the_launch() -> None:
    wide = Launch.of(KERNEL, (4, 2), 100)
    assert wide.warp_position((3, 1), 3) == ((3, 1, 0), 3)
    assert Launch.of(KERNEL, 4, 32).warp_position(2, 0) == ((2, 0, 0), 0)
    with pytest.raises(ValueError, match=r"The last block is \(3, 1, 0\)"):
        wide.warp_position((4, 0), 0)
    with pytest.raises(ValueError, match="warps are 0 to 3"):
        wide.warp_position((0, 0), 4)
    with pytest.raises(ValueError, match="the only warp is 0"):
        Launch.of(KERNEL, (4, 2), 32).warp_position(0, -1)


@pytest.mark.parametrize("threads", [32, 96, 256, 1024])
def test_another_block_size_covers_the_same_threads(threads: int) -> None:
    other = Launch.of(KERNEL, 1000, 256, (), 1024).resized(threads)
    assert other.block == (threads, 1, 1)
    assert (other.grid[0] - 1) * threads < 256_000 <= other.threads
    assert other.shared_bytes == max(1024, 4 * threads), "4 bytes a thread, never less than asked for"


def test_only_one_dimensional_launches_are_resized() -> None:
    assert Launch.of(KERNEL, 9, 64).is_one_dimensional
    assert not Launch.of(KERNEL, (9, 2), 64).is_one_dimensional
    assert not Launch.of(KERNEL, 9, (8, 8)).is_one_dimensional


class Array:
    """An array of `nbytes` bytes whose memory is kept alive with `memory_bytes`."""

    def __init__(self, nbytes: int, memory_bytes: int | None = None) -> None:
        self.nbytes = nbytes
        self.data = SimpleNamespace(mem=None if memory_bytes is None else SimpleNamespace(size=memory_bytes))


def is_array(value: object) -> bool:
    return isinstance(value, Array)


def test_only_small_arrays_of_recent_launches_are_kept_alive() -> None:
    large = Array(1 << 30)
    recent = arguments.make_recent_arrays()
    stored = arguments.StoredArguments((large, 7, Array(4 << 20), Array(0, 4 << 20)), is_array, recent)
    assert [[array.nbytes for array in arrays] for arrays in recent] == [[4 << 20, 0]]
    first, number, *_ = stored.find_current()
    assert (first, number) == (large, 7)
    del first, large
    with pytest.raises(GpulabError, match="arrays of this launch have been freed"):
        stored.find_current()
    for size in ((4 << 20) + 1, None), (8, (4 << 20) + 1):
        gone = arguments.StoredArguments((Array(*size), 1.5), is_array, recent)
        assert recent[-1] == []
        with pytest.raises(GpulabError, match="have been freed"):
            gone.find_current()
    for _ in range(7):
        last = arguments.StoredArguments((Array(8),), is_array, recent)
    assert len(recent) == 8
    assert last.find_current()[0].nbytes == 8
    recent.clear()
    with pytest.raises(GpulabError, match="have been freed"):
        last.find_current()


def test_without_cupti_no_driver_calls_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls.library, "load_cupti", lambda: None)
    assert calls.count_driver_calls(lambda: 1 / 0, ()) == ((), ())
