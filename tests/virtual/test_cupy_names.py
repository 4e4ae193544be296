"""Less common names of CuPy against NumPy, and errors for names that are absent."""

from __future__ import annotations

import importlib
import inspect
import io
import operator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from virtualgpu import cp
from virtualgpu.model import machine as slot
from virtualgpu.model.devices import device_info
from virtualgpu.model.machine import Machine

pytestmark = pytest.mark.usefixtures("machine")

X = np.array([[3.0, 1.0, 2.0], [6.0, 5.0, 4.0]])


def on_host(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [on_host(item) for item in value]
    return value.get() if isinstance(value, cp.ndarray) else value


SAME_AS_NUMPY = {
    "linspace_arrays": lambda xp: xp.linspace(xp.array([0.0, 1.0]), 10, 5),
    "linspace_axis": lambda xp: xp.linspace(xp.array([0.0, 1.0]), xp.array([2.0, 5.0]), 4, axis=1),
    "eye_order": lambda xp: xp.eye(3, 4, dtype="i4", order="F"),
    "other_byte_order": lambda xp: xp.asarray(np.arange(3, dtype=">i4")) + 1,
    "isdtype": lambda xp: xp.isdtype(xp.dtype("f4"), "real floating"),
    "cond": lambda xp: xp.linalg.cond(xp.asarray(X[:, :2])),
    "eigvals": lambda xp: xp.sort(xp.linalg.eigvals(xp.asarray(X[:, :2])).real),
    "hfft": lambda xp: xp.fft.hfft(xp.arange(4) + 0j),
    "reduceat": lambda xp: xp.add.reduceat(xp.arange(6), xp.array([0, 3])),
    "sort_stable": lambda xp: xp.argsort(xp.array([1, 0, 1, 0]), kind="stable"),
    "r_": lambda xp: xp.r_[1:4, 0, xp.asarray(X[0]), 0:1:3j],
    "c_": lambda xp: xp.c_[xp.asarray(X[0]), xp.asarray(X[1])],
    "c_list": lambda xp: xp.c_[[1, 2], [3, 4]],
    "einsum_lists": lambda xp: xp.einsum(xp.asarray(X), [0, 1], xp.asarray(X.T), [1, 2], [2, 0]),
    "einsum_implied": lambda xp: xp.einsum(xp.asarray(X), [26, 0]),
    "einsum_rest": lambda xp: xp.einsum(xp.asarray(X), [..., 1], [1, ...]),
    "piecewise": lambda xp: xp.piecewise(
        xp.asarray(X), [xp.asarray(X) < 2, xp.asarray(X) > 4], [-1.0, 7, 0.5]
    ),
    "ix_": lambda xp: xp.asarray(X)[xp.ix_([1, 0], [2, 0])],
    "ix_mask": lambda xp: xp.ix_(xp.array([True, False, True]), xp.array([], dtype=int)),
    "along_axis_number": lambda xp: xp.apply_along_axis(lambda a: a.sum(), 0, xp.asarray(X)),
    "along_axis_fewer": lambda xp: xp.apply_along_axis(lambda a: a[::2], -1, xp.asarray(X)),
    "along_axis_matrix": lambda xp: xp.apply_along_axis(
        lambda a, k: xp.outer(a, a) * k, 0, xp.arange(24.0).reshape(2, 3, 4), 2
    ),
    "over_axes": lambda xp: xp.apply_over_axes(xp.sum, xp.arange(24.0).reshape(2, 3, 4), [0, -1]),
    "byte_bounds": lambda xp: int(
        np.diff(getattr(xp, "byte_bounds", np.lib.array_utils.byte_bounds)(xp.asarray(X).T[1:]))[0]
    ),
    "strided": lambda xp: xp.lib.stride_tricks.as_strided(xp.asarray(X), (2, 2, 2), (8, 24, 8)),
    "strided_back": lambda xp: xp.lib.stride_tricks.as_strided(xp.asarray(X)[::-1], (2, 2), (-24, 16)),
    "windows": lambda xp: xp.lib.stride_tricks.sliding_window_view(xp.asarray(X), 2, axis=1),
    "windows_both": lambda xp: xp.lib.stride_tricks.sliding_window_view(xp.asarray(X), (2, 2)),
    "hanning": lambda xp: xp.hanning(7) + xp.kaiser(7, 2),
    "union": lambda xp: xp.union1d(xp.array([3, 1]), xp.array([1, 2])),
    "counts": lambda xp: xp.unique_counts(xp.array([3, 1, 3])),
    "polyval": lambda xp: xp.polyval(xp.array([1.0, 2.0, 3.0]), xp.asarray(X)),
    "polyfit": lambda xp: xp.polyfit(xp.arange(5.0), xp.arange(5.0) ** 2, 2).round(9),
    "tril_indices": lambda xp: xp.tril_indices(3, -1),
    "bits": lambda xp: xp.unpackbits(xp.packbits(xp.array([1, 0, 1, 1], dtype=xp.uint8))),
    "astype": lambda xp: xp.astype(xp.asarray(X), xp.int16),
    "histogramdd": lambda xp: xp.histogramdd(xp.asarray(X).T, bins=2)[0],
    "exception": lambda xp: xp.exceptions.AxisError.__name__,
}


@pytest.mark.parametrize("name", SAME_AS_NUMPY)
def test_same_as_numpy(name: str) -> None:
    result = on_host(SAME_AS_NUMPY[name](cp))
    expected = on_host(SAME_AS_NUMPY[name](np))
    if isinstance(expected, list):
        assert len(result) == len(expected)
        for a, b in zip(result, expected, strict=True):
            np.testing.assert_allclose(a, b)
        return
    if isinstance(expected, np.ndarray):
        assert result.dtype == expected.dtype
        assert result.shape == expected.shape
        np.testing.assert_allclose(result, expected)
    else:
        assert result == expected


def test_memoize_keeps_results_until_clear_memo() -> None:
    calls: list[int] = []
    memoized, other = (cp.memoize()(lambda x, step=step: calls.append(x) or x + step) for step in (1, 2))
    assert (memoized(3), memoized(3), other(3)) == (4, 4, 5)
    assert calls == [3, 3]
    cp.clear_memo()
    assert memoized(3) == 4
    assert calls == [3, 3, 3]
    assert issubclass(cp._util.PerformanceWarning, RuntimeWarning)


def test_strided_views_share_memory_and_stay_within_their_allocation() -> None:
    x = cp.zeros(300)
    view = cp.lib.stride_tricks.as_strided(x, (298, 3), (8, 8))
    view[5] = 1
    assert x[4:9].get().tolist() == [0, 1, 1, 1, 0]
    assert view.base is x
    for shape, strides in (((600, 3), (8, 8)), ((2,), (-8,))):
        with pytest.raises(ValueError, match="of an allocation that has"):
            cp.lib.stride_tricks.as_strided(x, shape, strides)
    assert cp.lib.stride_tricks.as_strided(x, (0, 10**9), (8, 8)).shape == (0, 10**9)
    with pytest.raises(NotImplementedError, match="Writeable"):
        cp.lib.stride_tricks.sliding_window_view(x, 2, writeable=True)
    with pytest.raises(NotImplementedError, match="directives"):
        cp.r_["0,2", [1]]


def test_the_truth_value_of_an_empty_array_warns() -> None:
    with pytest.warns(DeprecationWarning, match="truth value of an empty array"):
        assert not cp.array([])


@pytest.mark.parametrize("other", [[1, 2, 3], (1, 2, 3)])
@pytest.mark.parametrize("operation", [operator.add, operator.mul, operator.lt])
def test_operators_with_sequences_raise_with_a_remedy(operation: Any, other: Any) -> None:
    with pytest.raises(TypeError, match=r"Unsupported type.*cp\.asarray"):
        operation(cp.arange(3), other)
    x = cp.arange(3)
    with pytest.raises(ValueError, match=r"non-scalar.*cp\.asarray"):
        x[:] = other


def test_elementwise_functions_refuse_the_where_keyword() -> None:
    with pytest.raises(TypeError, match=r"Wrong arguments.*cp\.where"):
        cp.add(cp.arange(3), 1, where=cp.arange(3) > 1)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda: cp.linalg.multi_dot, r"use numpy\.linalg\.multi_dot on the host"),
        (lambda: cp.cuda.cusparse, "no sparse arrays"),
        (lambda: cp.cuda.device.get_cublas_handle, "none of NVIDIA's libraries"),
        (lambda: cp.cuda.malloc_system, r"cp\.cuda\.malloc_managed"),
        (lambda: cp.mask_indices, r"use numpy\.mask_indices on the host: .* cp\.asnumpy"),
        (lambda: cp.matrix, r"numpy\.matrix works on the host: .* cp\.asnumpy"),
        (lambda: cp.char, r"numpy\.char works on the host"),
        (lambda: cp.bool8, r"write cp\.bool_"),
        (lambda: cp.lib.scimath, r"numpy\.lib\.scimath works on the host"),
        (lambda: cp.random.chisquare, r"use numpy\.random\.chisquare on the host"),
        (lambda: cp.arange(3)._host_, "no attribute '_host_'$"),
        (lambda: cp.cuda.runtime.memcpy2D, r"cp\.cuda\.runtime has no 'memcpy2D'"),
        (lambda: cp.arange(3).ctypes, r"x\.get\(\)\.ctypes"),
    ],
)
def test_absent_names_have_a_remedy(read: Any, message: str) -> None:
    with pytest.raises(AttributeError, match=message):
        read()


def test_save_and_load_files(tmp_path: Path) -> None:
    x = cp.asarray(X)
    cp.save(tmp_path / "x.npy", x)
    np.testing.assert_array_equal(cp.load(tmp_path / "x.npy").get(), X)
    cp.savez(tmp_path / "both.npz", x, twice=2 * x)
    with cp.load(tmp_path / "both.npz") as both:
        assert set(both.files) == {"arr_0", "twice"}
        np.testing.assert_array_equal(both["twice"].get(), 2 * X)
    buffer = io.BytesIO()
    cp.save(buffer, x.T)
    buffer.seek(0)
    np.testing.assert_array_equal(np.load(buffer), X.T)


# Layout of copies, writable views


@pytest.mark.parametrize(
    "make",
    [
        lambda x, xp: x.copy("K"),
        lambda x, xp: x.copy("A"),
        lambda x, xp: x.copy(),
        lambda x, xp: x.astype("i4"),
        lambda x, xp: x.astype("i4", order="C"),
        lambda x, xp: xp.empty_like(x),
        lambda x, xp: xp.zeros_like(x, dtype="i2"),
        lambda x, xp: xp.ones_like(x, order="F"),
        lambda x, xp: xp.zeros_like(x, shape=(3, 3)),
    ],
)
@pytest.mark.parametrize(
    "view", [lambda a: a.transpose(1, 2, 0), lambda a: a.T, lambda a: a[:, ::-1], lambda a: a[:, ::2, :0]]
)
def test_copies_keep_the_order_of_axes_as_in_numpy(make: Any, view: Any) -> None:
    host = view(np.arange(24.0).reshape(2, 3, 4))
    device = view(cp.arange(24.0).reshape(2, 3, 4))
    result = make(device, cp)
    expected = make(host, np)
    assert result.shape == expected.shape
    if expected.size:
        assert result.strides == expected.strides


def test_zeros_like_accepts_a_host_array() -> None:
    zeros = cp.zeros_like(np.ones((2, 3), dtype="f4").T)
    assert isinstance(zeros, cp.ndarray)
    assert (zeros.shape, zeros.dtype, zeros.strides) == ((3, 2), np.float32, (4, 12))
    with pytest.raises(TypeError, match=r"cp\.asarray"):
        cp.zeros_like([1, 2])


def test_diagonals_and_broadcast_views_can_be_written() -> None:
    """NumPy returns these views read-only; CuPy has no such flag."""
    x = cp.zeros((3, 3))
    x.diagonal()[...] = 5
    x.diagonal(1)[...] = 2
    np.testing.assert_array_equal(x.get(), [[5, 2, 0], [0, 5, 2], [0, 0, 5]])
    row = cp.arange(3)
    cp.broadcast_to(row, (2, 3))[0, 0] = 9
    assert int(row[0]) == 9


# Exchange


class Foreign:
    def __init__(self, interface: dict[str, Any]) -> None:
        self.__cuda_array_interface__ = interface


def test_array_interface_shares_memory() -> None:
    x = cp.asarray(X)
    y = cp.asarray(Foreign(x.T.__cuda_array_interface__))
    np.testing.assert_array_equal(y.get(), X.T)
    y[0, 0] = 42
    assert x[0, 0] == 42
    copied = cp.array(Foreign(x.__cuda_array_interface__))
    copied[...] = 0
    assert x[0, 0] == 42


def test_dlpack() -> None:
    x = cp.asarray(X)
    shared = cp.from_dlpack(x)
    shared[0, 0] = 9
    assert x[0, 0] == 9
    assert x.__dlpack_device__() == (2, 0)
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":  # earlier ones ask for no device
        host = np.from_dlpack(x, device="cpu", copy=True)
        np.testing.assert_array_equal(host, x.get())
    with pytest.raises(BufferError, match=r"x\.get\(\)"):
        x.__dlpack__()
    with pytest.raises(TypeError, match=r"cupy\.array"):
        cp.from_dlpack(np.arange(3))


# The runtime by handle


# Arrays of a device that is gone


def test_arrays_of_a_deselected_device_are_read_only() -> None:
    x = cp.arange(4.0)
    slot.use(Machine([device_info("T4")]))
    np.testing.assert_array_equal(x.get(), np.arange(4.0))
    for change in (lambda: x.fill(0), lambda: x.__setitem__(0, 1), lambda: operator.iadd(x, 1)):
        with pytest.raises(ValueError, match="no longer the selected device"):
            change()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("compiler", "CompileException"),
        ("device", "Device"),
        ("driver", "get_build_version"),
        ("function", "Module"),
        ("memory", "MemoryPool"),
        ("memory_hook", "get_memory_hooks"),
        ("memory_hooks", "LineProfileHook"),
        ("nvrtc", "createProgram"),
        ("nvtx", "RangePush"),
        ("pinned_memory", "PinnedMemoryPool"),
        ("profiler", "start"),
        ("runtime", "getDeviceCount"),
        ("stream", "Stream"),
    ],
)
def test_submodules_of_cp_cuda_can_be_imported(module: str, name: str) -> None:
    value = getattr(cp.cuda, module)
    assert inspect.ismodule(value)
    assert module == "profiler" or importlib.import_module(f"virtualgpu.cp.cuda.{module}") is value
    assert name in dir(value)
    with pytest.raises(AttributeError, match=rf"cp\.cuda\.{module} has no 'nothing'"):
        value.nothing  # noqa: B018
