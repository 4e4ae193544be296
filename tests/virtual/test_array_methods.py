"""Methods of device arrays against the same methods of NumPy's arrays."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from virtualgpu import cp
from virtualgpu.cuda_errors import CUDADriverError

pytestmark = pytest.mark.usefixtures("machine")


def pair(dtype: Any = "f8", shape: tuple[int, ...] = (3, 4)) -> tuple[Any, Any]:
    host = np.random.default_rng(7).permutation(int(np.prod(shape))).reshape(shape).astype(dtype)
    return cp.asarray(host), host


def test_real_and_imaginary_parts_are_views_to_write_to() -> None:
    x, host = pair("c16")
    for array in (x, host):
        array.real = 5
        array.imag = array.real + 2
        array.imag[1] = 9
    np.testing.assert_array_equal(x.get(), host)
    real, _ = pair()
    assert real.real is real
    assert not real.imag.any()
    real.real = 3
    assert (real == 3).all()
    with pytest.raises(TypeError, match="imaginary"):
        real.imag = 1


@pytest.mark.parametrize(
    ("part", "value"), [(5, 50), (-1, 51), (slice(1, 9, 2), 52), (slice(3, 8), np.arange(2.0)), (..., 1)]
)
def test_writing_to_flat(part: Any, value: Any) -> None:
    for as_device in (False, True):
        x, host = pair()
        host.flat[part] = value
        x.flat[part] = cp.asarray(value) if as_device else value
        np.testing.assert_array_equal(x.get(), host)


def test_arrays_can_be_dumped_and_read(tmp_path: Path) -> None:
    x, host = pair("i4")
    x.dump(tmp_path / "pickled")
    np.testing.assert_array_equal(pickle.loads((tmp_path / "pickled").read_bytes()), host)
    np.testing.assert_array_equal(pickle.loads(x.dumps()), host)
    x.tofile(tmp_path / "plain")
    assert (tmp_path / "plain").read_bytes() == host.tobytes() == x.tobytes() == bytes(x)
    assert x.tobytes("F") == host.tobytes("F")
    assert x.tolist() == host.tolist()
    assert (repr(x), str(x)) == (repr(host), str(host))


def test_get_and_set_with_existing_arrays() -> None:
    x, host = pair()
    out = np.empty_like(host)
    assert x.get(out=out) is out
    np.testing.assert_array_equal(out, host)
    assert x.get(order="F").flags.f_contiguous
    assert x.T.get(order="A").flags.f_contiguous
    assert x.get(order="A").flags.c_contiguous
    x.set(host + 1)
    np.testing.assert_array_equal(x.get(), host + 1)
    calls: tuple[Callable[[Any], Any], ...] = (lambda other: x.get(out=other), x.set)
    for call in calls:
        with pytest.raises(TypeError, match="float32 array"):
            call(host.astype("f4"))
        with pytest.raises(ValueError, match="Shape mismatch"):
            call(np.empty((4, 3)))
        with pytest.raises(TypeError, match="Only numpy"):
            call([1.0])
    with pytest.raises(RuntimeError, match="non-contiguous"):
        x[:, ::2].set(host[:, ::2])


@pytest.mark.parametrize("kth", [0, 2, -1])
@pytest.mark.parametrize("axis", [0, 1])
def test_partition_and_sort_in_place(kth: int, axis: int) -> None:
    x, host = pair()
    x.partition(kth, axis=axis)
    whole = np.sort(host, axis)
    np.testing.assert_array_equal(x.get().take(kth, axis), whole.take(kth, axis))
    np.testing.assert_array_equal(np.sort(x.get(), axis), whole)
    y, _ = pair()
    y.sort(axis=axis)
    np.testing.assert_array_equal(y.get(), whole)
    for call in (lambda: y.sort(kind="quicksort"), lambda: cp.sort(y, kind="mergesort")):
        with pytest.raises(ValueError, match="kind can only be None or 'stable'"):
            call()


def test_operators_defer_to_classes_with_priority() -> None:
    class Other:
        def __radd__(self, other: Any) -> str:
            return "mine"

    class First(Other):
        __array_priority__ = 1000.0

    class Refuses(Other):
        __array_ufunc__ = None

    x, _ = pair()
    assert x + First() == "mine"
    assert x + Refuses() == "mine"
    with pytest.raises(TypeError, match="Other"):
        x + Other()


CODE = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'


def test_a_kernels_settings() -> None:
    kernel = cp.RawModule(code=CODE).get_function("twice")
    assert kernel.preferred_shared_memory_carveout == -1
    for percent in (0, 100, -1, 50):
        kernel.preferred_shared_memory_carveout = percent
        assert kernel.attributes["preferred_shared_memory_carveout"] == percent
    for percent in (-2, 101):
        with pytest.raises(CUDADriverError, match="INVALID_VALUE"):
            kernel.preferred_shared_memory_carveout = percent
    duplicate = pickle.loads(pickle.dumps(kernel))
    x = cp.ones(32, cp.float32)
    duplicate((1,), (32,), (x,))
    assert (x == 2).all()
