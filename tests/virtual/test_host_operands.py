"""Operands in host memory: copied, read or refused as in the sources of CuPy 14.2 (Python and Cython)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from virtualgpu import cp

H = np.array([3.0, 1.0, 2.0, 5.0, 4.0, 0.5])
M = np.arange(9.0).reshape(3, 3) + np.eye(3)
I = np.array([0, 2, 1])  # noqa: E741
K = np.array([[0, 2, 1]])

# `d` and `dm` are on the device where `xp` is `cp`; `h`, `m`, `i` and `k` are on the host.
COPIED = """
np.allclose(d, h)
np.isclose(d, h)
xp.allclose(h, d)
xp.allclose(h, h)
xp.isclose(d, [3, 1, 2, 5, 4, 0.5])
xp.tril(m)
xp.triu(m, k=1)
xp.vander(h)
xp.append(d, h)
xp.append(h, [1, 2])
xp.resize(h, (2, 4))
xp.tile(h, np.array([2, 1]))
xp.delete(d, i)
xp.delete(d, [True, False, False, True, False, False])
xp.average(d, weights=h)
xp.average(m, axis=0, weights=[1, 2, 3])
xp.percentile(d, np.array([10, 50]))
xp.quantile(d, [0.1, 0.5])
xp.fft.fftshift(h)
xp.fft.ifftshift(h)
xp.gradient(h)
xp.gradient(d, h.cumsum())
xp.diff(h)
xp.diff(d, prepend=h[:1], append=9)
xp.unwrap(h * 4)
xp.atleast_1d(h)
xp.atleast_2d(h)
xp.atleast_3d([1, 2])
xp.vstack([d, h])
xp.hstack((h, d))
xp.dstack([h, d])
xp.linspace(h, 1, 3)
xp.linspace(0, [1, 2], 4)
xp.logspace(0, np.array([1, 2]), 4)
xp.einsum('i,i->', h, d)
xp.einsum(h, [0], d, [0])
xp.cross(m[0], dm[1])
xp.real(h + 1j)
xp.imag(h + 1j)
xp.round(h / 3, 2)
xp.around(h)
xp.diag(h)
xp.diagflat(m)
xp.polyval(d, h)
xp.unique(np.array([2, 1, 2]))
xp.intersect1d(i, np.array([1, 5]))
xp.setdiff1d(i, np.array([1, 5]))
xp.cov(m)
xp.corrcoef(m)
xp.linalg.norm(h)
xp.linalg.cond(m)
xp.histogram(d, np.array([0, 2, 5]))
xp.histogram(d, [0.0, 2.5, 5])
xp.histogramdd((d, d), 3, weights=h)[0]
xp.take(d, i)
d.take([2, 0])
xp.take(dm, i, axis=1)
xp.compress(h > 1, d)
xp.extract(h > 2, d)
xp.take_along_axis(dm, k, axis=0)
xp.apply_over_axes(xp.sum, m, [0])
d[i]
dm[:, h[:3] > 1]
xp.split(d, np.array([2, 3]))
xp.array_split(d, np.array([2, 3]))
xp.hsplit(dm, np.array([1]))
xp.reshape(d, np.array([2, 3]))
d.reshape(np.array([3, 2]))
xp.broadcast_to(d, np.array([2, 6]))
xp.roll(dm, np.array([1, 2]), axis=(0, 1))
xp.pad(d, np.array([1, 2]))
xp.unravel_index(xp.asarray(i), np.array([2, 3]))
""".strip().split("\n")
CHANGES = {
    "place": lambda xp, d: xp.place(d, H > 2, H[:2]),
    "place of a list": lambda xp, d: xp.place(d, (H > 2).tolist(), [9]),
    "put": lambda xp, d: xp.put(d, I, H[:3] * 10),
    "put of a list": lambda xp, d: d.put([0, 1], [7, 8]),
    "put_along_axis": lambda xp, d: xp.put_along_axis(d, I, H[:3] + 7, axis=0),
    "index": lambda xp, d: d.__setitem__(I, H[3:]),
    "mask": lambda xp, d: d.__setitem__(H > 2, [7.0, 8.0, 9.0]),
    "copyto": lambda xp, d: xp.copyto(d, np.array([4.0])),
}
REFUSED = """
d + h
h * d
d @ h
d < h
d.__iadd__(h)
cp.maximum(d, h)
cp.sqrt(h)
cp.where(d > 1, h, d)
cp.where(h > 1, d, d)
cp.concatenate([d, h])
np.concatenate([d, h])
cp.stack([d, h])
cp.column_stack([d, h])
cp.clip(d, h, 9)
cp.clip(d, [0, 0, 0, 0, 0, 0], 9)
cp.gradient(d, [0, 1, 2, 3, 4, 5])
cp.copyto(d, [1, 2, 3, 4, 5, 6])
cp.polyfit(d, d, 1, w=[1, 2, 3, 4, 5, 6])
cp.array_equal(d, h)
cp.isin(d, h)
cp.union1d(d, h)
cp.interp(h, d, d)
cp.digitize(d, h)
cp.searchsorted(d, h)
cp.searchsorted(d, [1, 2])
cp.bincount(cp.asarray(i), weights=h[:3])
cp.bincount(cp.asarray(i), weights=[1, 2, 3])
cp.histogram(d, 3, weights=h)
cp.ediff1d(d, to_end=h)
cp.ediff1d(d, [1, 2])
cp.trapezoid(d, x=h)
cp.trapezoid(d, [0, 1, 2, 3, 4, 5])
cp.putmask(d, h > 1, d)
cp.putmask(d, d > 1, h)
cp.lexsort((d, d))
cp.convolve(d, h)
cp.correlate(h, d)
cp.polyadd(d, h)
cp.dot(d, h)
cp.vdot(d, h)
cp.inner(d, h)
cp.outer(d, h)
cp.tensordot(d, h, 1)
cp.kron(d, h)
cp.median(h)
cp.cumsum(h)
cp.nansum(h)
cp.count_nonzero(h)
cp.all(h)
cp.argmax(h)
cp.nonzero(h)
cp.repeat(d, i)
cp.expand_dims(h, 0)
cp.moveaxis(m, 0, 1)
cp.broadcast_to(h, (2, 6))
cp.fft.fft(h)
cp.linalg.solve(dm, m)
cp.linalg.inv(m)
cp.linalg.svd(m)
cp.unique([2, 1, 2])
cp.take_along_axis(dm, [[0, 2, 1]], axis=0)
cp.apply_along_axis(cp.sum, 0, m)
d.__setitem__(slice(3), h[:3])
""".strip().split("\n")
ON_THE_HOST = ["sum", "mean", "max", "sort", "argsort", "ravel", "squeeze", "transpose", "std"]
NAMES = {  # CuPy's names of parameters that NumPy calls otherwise
    "xp.delete(d, indices=[0])": "np.delete(h, [0])",
    "xp.unravel_index(xp.array([3]), dims=(2, 3))": "np.unravel_index(np.array([3]), (2, 3))",
    "xp.extract(d > 2, a=d)": "np.extract(h > 2, h)",
    "xp.flip(a=d)": "np.flip(h)",
    "xp.histogram(x=d, bins=3)": "np.histogram(h, 3)",
    "xp.stack(tup=[d, d])": "np.stack([h, h])",
    "xp.in1d(ar1=d, ar2=d[:2])": "np.isin(h, h[:2])",
    "xp.linalg.matrix_power(M=dm, n=2)": "np.linalg.matrix_power(m, 2)",
    "xp.asarray(d, copy=True)": "h",
}


def _names(xp: Any) -> dict[str, Any]:
    to = cp.asarray if xp is cp else np.copy
    return {"xp": xp, "cp": cp, "np": np, "d": to(H), "dm": to(M), "h": H, "m": M, "i": I, "k": K}


def _on_the_host(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_on_the_host(item) for item in value]
    assert isinstance(value, cp.ndarray), type(value)
    return value.get()


def _same(result: Any, expected: Any) -> None:
    if isinstance(expected, list | tuple):
        assert len(result) == len(expected)
        for one, other in zip(result, expected, strict=True):
            _same(one, other)
    else:
        np.testing.assert_allclose(result, expected, atol=1e-12)


@pytest.mark.parametrize("expression", COPIED)
def test_host_operands_that_cupy_copies_are_copied(expression: str) -> None:
    _same(_on_the_host(eval(expression, _names(cp))), eval(expression, _names(np)))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_host_values_can_be_assigned_to_device_arrays(change: Any) -> None:
    device = cp.asarray(H)
    host = H.copy()
    change(cp, device)
    change(np, host)
    np.testing.assert_array_equal(device.get(), host)


@pytest.mark.parametrize("expression", REFUSED)
def test_host_operands_that_cupy_refuses_are_refused(expression: str) -> None:
    with pytest.raises((TypeError, ValueError)):
        eval(expression, _names(cp))


@pytest.mark.parametrize("name", ON_THE_HOST)
def test_functions_of_numpy_arrays_compute_on_the_host(name: str) -> None:
    result = getattr(cp, name)(M)
    assert isinstance(result, np.ndarray | np.generic)
    np.testing.assert_allclose(result, getattr(np, name)(M))


@pytest.mark.parametrize("expression", NAMES)
def test_parameters_have_the_names_used_by_cupy(expression: str) -> None:
    _same(_on_the_host(eval(expression, _names(cp))), eval(NAMES[expression], _names(np)))


def test_copying_a_host_operand_takes_bus_time() -> None:
    start = cp.cuda.Event()
    end = cp.cuda.Event()
    large = np.zeros(1 << 20)
    d = cp.zeros(1 << 20)
    times = []
    for operand in (cp.asarray(large), large):
        start.record()
        cp.allclose(d, operand)
        end.record()
        end.synchronize()
        times.append(cp.cuda.get_elapsed_time(start, end))
    assert times[1] > 2 * times[0]


def test_copy_false_refuses_a_necessary_copy() -> None:
    d = cp.arange(3)
    assert cp.asarray(d, copy=False) is d
    assert cp.asarray([1, 2], copy=False).tolist() == [1, 2], "as CuPy 14.2 on an H200"
    with pytest.raises(ValueError, match="Unable to avoid copy"):
        cp.asarray(d, cp.float32, copy=False)
    with pytest.raises(ValueError, match=r"non-scalar numpy\.ndarray cannot be used for copyto"):
        cp.copyto(d, np.arange(3))
