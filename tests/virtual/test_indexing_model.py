"""Reading and writing with random indices of every kind, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from virtualgpu import cp

pytestmark = pytest.mark.usefixtures("machine")
QUICK = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)

SHAPES = hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4)


@st.composite
def arrays_and_keys(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], Any]:
    """Draw an array in one of several layouts, and a key that fits its shape."""
    shape = draw(SHAPES)
    a = np.arange(np.prod(shape), dtype=draw(st.sampled_from(["i4", "f8", "u1"]))).reshape(shape)
    a = draw(st.sampled_from([a, a.T, a[::-1]]))
    kind = draw(st.sampled_from(["basic", "arrays", "mask"]))
    if kind == "mask":
        return a, draw(hnp.arrays(bool, a.shape[: draw(st.integers(1, a.ndim))]))
    basic = hnp.basic_indices(a.shape, allow_newaxis=True, allow_ellipsis=True)
    if kind == "basic":
        return a, draw(basic)
    count = draw(st.integers(1, a.ndim))
    shapes = hnp.array_shapes(min_dims=1, max_dims=2, max_side=3)
    common = draw(shapes)
    parts: list[Any] = []
    for axis in range(count):
        length = a.shape[axis]
        numbers = hnp.arrays("i8", common, elements=st.integers(-length, length - 1))
        parts.append(draw(st.one_of(numbers, st.slices(length), st.integers(-length, length - 1))))
    return a, tuple(parts)


def on_device(key: Any) -> Any:
    """Return the key with its arrays on the device."""
    if isinstance(key, tuple):
        return tuple(on_device(part) for part in key)
    return cp.asarray(key) if isinstance(key, np.ndarray) else key


@QUICK
@given(arrays_and_keys())
def test_reading_with_random_indices(case: tuple[np.ndarray[Any, Any], Any]) -> None:
    host, key = case
    device = cp.asarray(host)
    expected = np.asarray(host[key])
    for read in (device[on_device(key)], device[key]):
        assert isinstance(read, cp.ndarray)
        assert (read.shape, read.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(read.get(), expected)


@QUICK
@given(arrays_and_keys(), st.integers(100, 120))
def test_writing_a_number_and_an_array(case: tuple[np.ndarray[Any, Any], Any], value: int) -> None:
    host, key = case
    for filled in (value, np.arange(host[key].size, dtype=host.dtype).reshape(np.shape(host[key]))):
        if np.unique(np.arange(host.size).reshape(host.shape)[key]).size != host[key].size:
            filled = value  # of several values for one element any may stay
        device = cp.asarray(host)
        expected = host.copy()
        expected[key] = filled
        device[on_device(key)] = cp.asarray(filled) if isinstance(filled, np.ndarray) else filled
        np.testing.assert_array_equal(device.get(), expected)


@QUICK
@given(arrays_and_keys())
def test_a_view_shares_memory_and_a_copy_does_not(case: tuple[np.ndarray[Any, Any], Any]) -> None:
    host, key = case
    device = cp.asarray(host)
    read = device[on_device(key)]
    if read.size:
        read[...] = 77
        changed = bool((device.get() != host).any()) or bool((host == 77).any())
        shares = np.shares_memory(host, host[key]) if not np.isscalar(host[key]) else True
        assert changed == shares


@QUICK
@given(SHAPES, st.data())
def test_device_index_arrays_wrap_around(shape: tuple[int, ...], data: st.DataObject) -> None:
    """A kernel cannot raise, so CuPy takes any index modulo the length."""
    host = np.arange(np.prod(shape)).reshape(shape)
    places = data.draw(hnp.arrays("i8", 3, elements=st.integers(-20, 20)))
    np.testing.assert_array_equal(cp.asarray(host)[cp.asarray(places)].get(), host[places % shape[0]])
    with pytest.raises(IndexError, match="out of bounds"):
        cp.asarray(host)[data.draw(st.sampled_from([shape[0], -shape[0] - 1]))]


@QUICK
@given(SHAPES, st.data())
def test_reading_and_writing_the_flat_iterator(shape: tuple[int, ...], data: st.DataObject) -> None:
    host = np.arange(np.prod(shape)).reshape(shape).T
    device = cp.asarray(host)
    key = data.draw(st.one_of(st.slices(host.size), st.integers(-host.size, host.size - 1)))
    np.testing.assert_array_equal(device.flat[key].get(), host.flat[key])
    changed = host.copy(order="K")
    device.flat[key] = 55
    changed.flat[key] = 55
    np.testing.assert_array_equal(device.get(), changed)
    np.testing.assert_array_equal([int(x) for x in device.flat], list(changed.flat))
    assert len(device.flat) == host.size
