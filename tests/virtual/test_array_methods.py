"""What an array's own methods do, against the same methods of NumPy's arrays."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from virtualgpu import cp
from virtualgpu.cuda_errors import CUDADriverError
from virtualgpu.errors import NotSupportedError

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


def test_every_place_of_flat() -> None:
    x, host = pair()
    for view, expected in ((x, host), (x.T, host.T), (x[:, ::2], host[:, ::2])):
        assert [float(value) for value in view.flat] == list(expected.flat)
        assert len(view.flat) == len(expected.flat)
        for n in range(-expected.size, expected.size):
            assert float(view.flat[n]) == expected.flat[n]
        for part in (slice(2, None, 3), slice(None, None, -1), ...):
            np.testing.assert_array_equal(view.flat[part].get(), expected.flat[part])
        for outside in (expected.size, -expected.size - 1):
            with pytest.raises(IndexError, match="out of bounds"):
                view.flat[outside]
    for wrong in (True, 1.0, "1", None):
        with pytest.raises(IndexError, match="unsupported iterator index"):
            x.flat[wrong]


@pytest.mark.parametrize(
    ("part", "value"), [(5, 50), (-1, 51), (slice(1, 9, 2), 52), (slice(3, 8), np.arange(2.0)), (..., 1)]
)
def test_writing_to_flat(part: Any, value: Any) -> None:
    for as_device in (False, True):
        x, host = pair()
        host.flat[part] = value
        x.flat[part] = cp.asarray(value) if as_device else value
        np.testing.assert_array_equal(x.get(), host)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    x, host = pair("i4")
    x.dump(tmp_path / "pickled")
    np.testing.assert_array_equal(pickle.loads((tmp_path / "pickled").read_bytes()), host)
    np.testing.assert_array_equal(pickle.loads(x.dumps()), host)
    x.tofile(tmp_path / "plain")
    assert (tmp_path / "plain").read_bytes() == host.tobytes() == x.tobytes() == bytes(x)
    assert x.tobytes("F") == host.tobytes("F")
    assert x.tolist() == host.tolist()
    assert (repr(x), str(x)) == (repr(host), str(host))


def test_scalars() -> None:
    one = cp.asarray([[2.5]])
    assert (one.item(), bool(one), f"{cp.asarray(2.5):.2f}") == (2.5, True, "2.50")
    zero = cp.asarray(2.5)
    assert (int(zero), float(zero), complex(zero)) == (2, 2.5, 2.5 + 0j)
    with pytest.raises(ValueError, match="size 1"):
        cp.arange(2).item()
    with pytest.raises(ValueError, match="ambiguous"):
        bool(cp.arange(2))
    with pytest.warns(DeprecationWarning, match="empty"):
        assert not bool(cp.zeros(0))


def test_copies_to_and_from_arrays_that_are_there() -> None:
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


def test_a_pointer_with_strides_is_seen_as_numpy_sees_it() -> None:
    x, host = pair("i4", (6, 8))
    again = cp.ndarray((3, 4), np.int32, memptr=x.data + 4, strides=(64, 8))
    np.testing.assert_array_equal(again.get(), host[::2, 1::2])
    assert again.data.ptr == x.data.ptr + 4
    assert x[2:, 3:].data.ptr == x.data.ptr + 4 * (2 * 8 + 3)
    assert cp.zeros((0, 3)).data.ptr == 0


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


@pytest.mark.parametrize("compare", [operator.eq, operator.ne, operator.lt, operator.ge])
def test_comparing_with_arrays_without_dimensions(compare: Callable[[Any, Any], Any]) -> None:
    x, host = pair()
    np.testing.assert_array_equal(compare(x, np.asarray(5.0)).get(), compare(host, np.asarray(5.0)))
    with pytest.raises(TypeError, match="host memory"):
        compare(x, host)


def test_operators_leave_the_work_to_those_who_claim_it() -> None:
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


def test_what_flags_say() -> None:
    x, _ = pair()
    told = [line.split(" : ") for line in repr(x.T.flags).splitlines()]
    assert {name.strip(): value for name, value in told} == {
        "C_CONTIGUOUS": "False",
        "F_CONTIGUOUS": "True",
        "OWNDATA": "False",
    }


@pytest.mark.parametrize(
    "key",
    [
        np.s_[1],
        np.s_[..., -1],
        np.s_[None, 1:, 2],
        np.s_[:, [0, 2]],
        np.s_[[2, 0], 1:3],
        np.s_[None, [1, 1]],
        np.s_[..., None, [3, 0]],
        np.s_[np.array([True, False, True])],
        np.s_[:, np.array([True, False, True, False])],
        np.s_[np.eye(3, 4, dtype=bool)],
        np.s_[True],
        np.s_[[], 1],
        np.s_[np.int8(2), ::-1],
    ],
    ids=str,
)
def test_keys(key: Any) -> None:
    x, host = pair()
    np.testing.assert_array_equal(x[key].get(), host[key])


def test_keys_that_are_none() -> None:
    x, _ = pair()
    with pytest.raises(IndexError, match="too many indices"):
        x[[0], 1, 2]
    with pytest.raises(IndexError, match="integer or boolean type"):
        x[[0.5]]
    with pytest.raises(IndexError, match="only integers"):
        x["a"]
    with pytest.raises(IndexError, match="length 0"):
        cp.zeros((2, 0))[:, [0]]
    # Out of range, index arrays wrap around, as CuPy documents.
    np.testing.assert_array_equal(x[[3, -4]].get(), x[[0, 2]].get())


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
    again = pickle.loads(pickle.dumps(kernel))
    x = cp.ones(32, cp.float32)
    again((1,), (32,), (x,))
    assert (x == 2).all()


def test_what_a_module_is_made_of() -> None:
    for given in ({}, {"code": CODE, "path": "x.cubin"}):
        with pytest.raises(TypeError, match="Exactly one"):
            cp.RawModule(**given)
    with pytest.raises(CUDADriverError, match=r"FILE_NOT_FOUND.*no such\.cubin"):
        cp.RawModule(path="no such.cubin").get_function("k")
    for wrong in ({"backend": "nvcc"}, {"jitify": True}, {"translate_cucomplex": True}):
        with pytest.raises(NotSupportedError):
            cp.RawModule(code=CODE, **wrong)
    with pytest.raises(TypeError, match="tuple of str"):
        cp.RawModule(code=CODE, options="-DN=1")
