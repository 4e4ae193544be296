"""``cupyx.scipy``, the rest of ``cp.fft``, and ``cp.vectorize``, compared with SciPy and NumPy."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np
import pytest

import virtualgpu.cp as cp
from virtualgpu import cupyx
from virtualgpu.model import machine as _machine

pytestmark = pytest.mark.usefixtures("machine")

RNG = np.random.default_rng(20)
IMAGE = RNG.random((37, 50)).astype(np.float32)
SIGNAL = RNG.standard_normal(300)


def scipy(part: str) -> Any:
    return pytest.importorskip(f"scipy.{part}")


def ours(part: str) -> Any:
    return importlib.import_module(f"virtualgpu.cupyx.scipy.{part}")


def to_device(values: Any) -> Any:
    return tuple(cp.asarray(v) if isinstance(v, np.ndarray) else v for v in values)


def same(result: Any, expected: Any) -> None:
    assert isinstance(result, cp.ndarray)
    assert result.dtype == np.asarray(expected).dtype
    np.testing.assert_array_equal(result.get(), expected)


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("convolve", (IMAGE, RNG.random((5, 3))), {"mode": "constant", "cval": 2.0}),
        ("correlate", (IMAGE, RNG.random((3, 3))), {"mode": "wrap", "origin": 1}),
        ("convolve1d", (IMAGE, RNG.random(5)), {"axis": 0}),
        ("gaussian_filter", (IMAGE, 1.5), {"order": 1}),
        ("uniform_filter", (IMAGE, 5), {"mode": "nearest"}),
        ("median_filter", (IMAGE, 3), {}),
        ("sobel", (IMAGE,), {"axis": 0}),
        ("zoom", (IMAGE, 1.7), {"order": 1}),
        ("zoom", (IMAGE, (0.5, 2)), {}),
        ("rotate", (IMAGE, 30.0), {"reshape": False}),
        ("map_coordinates", (IMAGE, RNG.random((2, 40)) * 30), {"order": 1}),
        ("binary_dilation", (IMAGE > 0.9,), {"iterations": 2}),
        ("sum_labels", (IMAGE, (IMAGE > 0.5).astype(np.int32), np.array([0, 1])), {}),
    ],
)
def test_ndimage_functions_equal_scipy(name: str, args: Any, kwargs: dict[str, Any]) -> None:
    right = getattr(scipy("ndimage"), name)(*args, **kwargs)
    same(getattr(ours("ndimage"), name)(*to_device(args), **kwargs), np.asarray(right))


def test_label_returns_labels_and_their_count() -> None:
    right, number = scipy("ndimage").label(IMAGE > 0.6)
    labels, count = ours("ndimage").label(cp.asarray(IMAGE > 0.6))
    same(labels, right)
    assert type(count) is int
    assert count == number


def test_results_go_to_output() -> None:
    right = scipy("ndimage").gaussian_filter(IMAGE, 2)
    image = cp.asarray(IMAGE)
    output = cp.zeros(IMAGE.shape, cp.float32)
    before = _machine.current().kernel_launches
    assert ours("ndimage").gaussian_filter(image, 2, output=output) is output
    same(output, right)
    assert _machine.current().kernel_launches == before + 1
    same(ours("ndimage").sobel(image, output=cp.float64), scipy("ndimage").sobel(IMAGE, output=np.float64))


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("convolve", (SIGNAL, RNG.random(17)), {"mode": "same"}),
        ("convolve", (SIGNAL, RNG.random(17)), {"method": "direct"}),
        ("correlate", (SIGNAL, RNG.random(9)), {"mode": "valid"}),
        ("convolve2d", (IMAGE, RNG.random((4, 4))), {"boundary": "symm", "mode": "same"}),
        ("fftconvolve", (IMAGE, IMAGE), {"mode": "full"}),
        ("medfilt2d", (IMAGE.astype(np.float64), 3), {}),
    ],
)
def test_signal_functions_equal_scipy(name: str, args: Any, kwargs: dict[str, Any]) -> None:
    right = getattr(scipy("signal"), name)(*args, **kwargs)
    same(getattr(ours("signal"), name)(*to_device(args), **kwargs), right)


@pytest.mark.parametrize(
    "name", ["erf", "erfc", "gamma", "gammaln", "expit", "j0", "digamma", "ndtr", "softmax"]
)
def test_special_functions(name: str) -> None:
    values = np.array([-2.5, -0.0, 0.3, 1.0, 7.5, np.inf, np.nan])
    with np.errstate(all="ignore"):
        right = getattr(scipy("special"), name)(values)
    same(getattr(ours("special"), name)(cp.asarray(values)), right)


@pytest.mark.parametrize("part", ["ndimage", "signal", "special"])
def test_every_public_name_exists_in_scipy(part: str) -> None:
    scipy_module = scipy(part)
    module = ours(part)
    for name in module.__all__:
        assert callable(getattr(module, name))
        assert hasattr(scipy_module, name)
        assert "SciPy's function" in getattr(module, name).__doc__
    assert dir(module) == module.__all__


def test_arrays_of_the_host_are_refused() -> None:
    scipy("ndimage")
    with pytest.raises(TypeError, match=r"cp\.asarray"):
        ours("ndimage").convolve(IMAGE, cp.ones((3, 3)))
    with pytest.raises(TypeError, match=r"cp\.asarray"):
        ours("signal").fftconvolve(cp.asarray(SIGNAL), SIGNAL)


def test_the_error_without_scipy_names_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "scipy"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.setitem(sys.modules, "scipy.signal", None)
    signal = ours("signal")
    monkeypatch.delitem(signal.__dict__, "wiener", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"signal computes with SciPy.*pip install"):
        _ = signal.wiener
    assert "wiener" in dir(signal)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda: cupyx.scipy.sparse, "no cuSPARSE"),
        (lambda: cupyx.scipy.stats, "use SciPy on the host"),
        (lambda: cupyx.scipy.linalg, r"cp\.linalg has"),
        (lambda: ours("ndimage").watershed_ift, "no 'watershed_ift'"),
        (lambda: ours("fft").dct, "no 'dct'"),
    ],
)
def test_missing_parts_of_cupyx_scipy_have_a_remedy(read: Any, message: str) -> None:
    with pytest.raises(AttributeError, match=message):
        read()


def test_fast_lengths_have_small_factors_only() -> None:
    assert ours("fft").next_fast_len(0) == 0
    fast = sorted(
        2**a * 3**b * 5**c * 7**d for a in range(11) for b in range(7) for c in range(5) for d in range(4)
    )
    for target in range(1, 1000):
        assert ours("fft").next_fast_len(target) == next(n for n in fast if n >= target)
    with pytest.raises(ValueError, match="positive"):
        ours("fft").next_fast_len(-1)


def test_transforms_of_cupyx_scipy_fft_and_fft_config() -> None:
    x = cp.asarray(SIGNAL)
    np.testing.assert_array_equal(ours("fft").rfft(x).get(), np.fft.rfft(SIGNAL))
    assert cp.fft.config.use_multi_gpus is False
    cp.fft.config.clear_plan_cache()
    with pytest.raises(AttributeError, match="get_plan_cache"):
        _ = cp.fft.config.get_plan_cache


# cp.vectorize


def test_vectorize_is_one_kernel() -> None:
    def clipped(x: Any, low: Any) -> Any:
        return low if x < low else x

    x = cp.asarray(IMAGE)
    before = _machine.current().kernel_launches
    result = cp.vectorize(clipped)(x, cp.float32(0.5))
    assert _machine.current().kernel_launches == before + 1
    np.testing.assert_array_equal(result.get(), np.maximum(IMAGE, np.float32(0.5)))
    assert result.dtype == np.float32


def test_vectorize_broadcasts_and_returns_several_results() -> None:
    x = np.arange(4.0)
    y = np.arange(3.0)[:, None]
    both = cp.vectorize(lambda a, b: (a + b, a > b))
    sums, larger = both(cp.asarray(x), cp.asarray(y))
    np.testing.assert_array_equal(sums.get(), x + y)
    np.testing.assert_array_equal(larger.get(), x > y)
    assert cp.vectorize(lambda a: a * 2, otypes="f")(cp.arange(3)).dtype == np.float32


def test_vectorize_refuses_as_cupy_does() -> None:
    with pytest.raises(NotImplementedError, match="excluded"):
        cp.vectorize(abs, excluded={0})
    with pytest.raises(TypeError, match="takes a function"):
        cp.vectorize(3)
    with pytest.raises(TypeError, match="device array"):
        cp.vectorize(abs)(3)
    with pytest.raises(TypeError, match=r"cp\.asarray"):
        cp.vectorize(lambda a, b: a)(cp.ones(3), np.ones(3))


def test_footprints_and_matrices_can_be_host_arrays() -> None:
    """CuPy copies footprints, structures and matrices, and refuses weights."""
    module = ours("ndimage")
    scipy_module = scipy("ndimage")
    image = cp.asarray(IMAGE)
    cross = np.array([[0, 1, 0], [1, 1, 1], [0, 1, 0]])
    same(module.maximum_filter(image, footprint=cross), scipy_module.maximum_filter(IMAGE, footprint=cross))
    same(module.rank_filter(image, 1, None, cross), scipy_module.rank_filter(IMAGE, 1, None, cross))
    same(module.grey_erosion(image, structure=cross), scipy_module.grey_erosion(IMAGE, structure=cross))
    same(module.affine_transform(image, np.eye(2) / 2), scipy_module.affine_transform(IMAGE, np.eye(2) / 2))
    same(module.shift(image, np.array([1, 2])), scipy_module.shift(IMAGE, [1, 2]))
    with pytest.raises(TypeError, match="Unsupported type"):
        module.convolve(image, cross)
