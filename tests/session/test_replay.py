"""Copies of kernel arguments for the virtual twin: contents, aliasing and everything else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpulab as gl
from tests.session.kernels import COUNT_UP
from virtualgpu.launch.copies import ArgumentCopies, count_array_bytes, make_placeholders


@pytest.fixture
def cp() -> Any:
    """One virtual machine is used for both sides: the copies must still be separate arrays."""
    gl.use_device("virtual:T4")
    return gl.cp


def test_an_array_passed_twice_is_copied_once(cp: Any) -> None:
    x = cp.zeros(64, cp.int32)
    first, second = ArgumentCopies((x, x), cp).copy_to(cp)
    assert first.data.ptr == second.data.ptr
    kernel = cp.RawKernel(COUNT_UP, "count_up")
    kernel((1,), (64,), (first, np.int32(64)))
    np.testing.assert_array_equal(second.get().view(np.int32), 1)
    np.testing.assert_array_equal(x.get(), 0)


def test_copies_of_overlapping_slices_keep_their_offsets(cp: Any) -> None:
    base = cp.arange(1000, dtype=cp.int32)
    args = (base[100:300], base[250:400], base[::2], base[600:])
    copies = ArgumentCopies(args, cp).copy_to(cp)
    for copy, arg in zip(copies, args, strict=True):
        assert copy.data.ptr - copies[2].data.ptr == arg.data.ptr - base.data.ptr
    assert count_array_bytes(args, cp) == 4000


def test_an_access_beyond_a_copied_array_is_a_fault(cp: Any) -> None:
    x = cp.zeros(100, cp.int32)
    y = cp.zeros(100, cp.int32)
    copies = ArgumentCopies((x, y), cp).copy_to(cp)
    kernel = cp.RawKernel(COUNT_UP, "count_up")
    with pytest.raises(RuntimeError, match="IllegalAddress"):
        kernel((1,), (128,), (copies[0], np.int32(101)))


def test_strided_and_empty_arrays(cp: Any) -> None:
    x = cp.arange(60, dtype=cp.int16).reshape(6, 10)
    column = x[:, 3]
    (copy,) = ArgumentCopies((column,), cp).copy_to(cp)
    raw = copy.get().view(np.int16)
    np.testing.assert_array_equal(raw[::10], x.get()[:, 3])
    (empty,) = ArgumentCopies((cp.zeros(0, cp.float32),), cp).copy_to(cp)
    assert empty.size == 0


def test_kept_contents_are_a_snapshot(cp: Any) -> None:
    base = cp.arange(100, dtype=cp.int32)
    alone = cp.ones(4)
    snapshot = ArgumentCopies((base[:60], base[40:], alone, 7), cp, keep_contents=True)
    base[...] = 0
    alone[...] = 0
    first, second, other, number = snapshot.copy_to(cp)
    np.testing.assert_array_equal(first.get().view(np.int32)[:60], np.arange(60))
    np.testing.assert_array_equal(second.get().view(np.int32)[:60], np.arange(40, 100))
    assert second.data.ptr - first.data.ptr == 160
    np.testing.assert_array_equal(other.get(), 1)
    assert number == 7


def test_placeholders_have_type_and_shape_but_their_own_memory(cp: Any) -> None:
    x = cp.arange(12, dtype=cp.int16).reshape(3, 4)
    array, number = make_placeholders((x, 5), cp, cp)
    assert (array.shape, array.dtype, number) == (x.shape, x.dtype, 5)
    assert array.data.ptr != x.data.ptr
