"""``cp.fft``: discrete Fourier transforms through NumPy on the host."""

from __future__ import annotations

from collections.abc import Callable as _Callable
from typing import Any as _Any

import numpy as np

from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._missing_names import AttributeNamespace as _Namespace
from virtualgpu.cp._missing_names import make_module_getattr as _module_getattr
from virtualgpu.cp._routines.creation import array
from virtualgpu.cp._routines.from_numpy import lift_to_device

__all__ = [
    "config",
    *("fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft"),
    *("irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn"),
]

# Largest number of elements that cuFFT transforms in one kernel.
_ONE_KERNEL_ELEMENTS = 4096


def _make_pass_count(long_passes: float, short_passes: float) -> _Callable[..., float]:
    """Return a function that computes how many times a transform moves the bytes of its array.

    The numbers come from times on an H200: `long_passes` from one transform of 2^23 elements, `short_passes`
    from rows of 4,096 elements.
    """

    def count_passes(a: _Any, n: int | None = None, axis: int = -1, *_: _Any, **__: _Any) -> float:
        return short_passes if (n or np.shape(a)[axis]) <= _ONE_KERNEL_ELEMENTS else long_passes

    return count_passes


def _count_two_passes(*_: _Any, **__: _Any) -> float:
    return 3.9  # rows, then columns; CuPy 14.2 on an H200, 4,096 by 4,096


# Inverse transforms are divided by their length in a separate pass; CuPy 14.2 on an H200.
fft = lift_to_device(np.fft.fft, count_passes=_make_pass_count(4.2, 1.4))
ifft = lift_to_device(np.fft.ifft, count_passes=_make_pass_count(4.9, 2.1))
rfft = lift_to_device(np.fft.rfft, count_passes=_make_pass_count(5.9, 1.4))
irfft = lift_to_device(np.fft.irfft, count_passes=_make_pass_count(9.2, 2.1))
fft2 = lift_to_device(np.fft.fft2, count_passes=_count_two_passes)
ifft2 = lift_to_device(np.fft.ifft2, count_passes=_count_two_passes)
fftn = lift_to_device(np.fft.fftn, count_passes=_count_two_passes)
ifftn = lift_to_device(np.fft.ifftn, count_passes=_count_two_passes)
rfft2 = lift_to_device(np.fft.rfft2)
irfft2 = lift_to_device(np.fft.irfft2)
rfftn = lift_to_device(np.fft.rfftn)
irfftn = lift_to_device(np.fft.irfftn)
hfft = lift_to_device(np.fft.hfft)
ihfft = lift_to_device(np.fft.ihfft)
fftshift = lift_to_device(np.fft.fftshift)
ifftshift = lift_to_device(np.fft.ifftshift)


def fftfreq(n: int, d: float = 1.0) -> ndarray:
    """Return the frequencies that the outputs of `fft` represent for `n` samples with spacing `d`."""
    return array(np.fft.fftfreq(n, d))


def rfftfreq(n: int, d: float = 1.0) -> ndarray:
    """Return the frequencies that the outputs of `rfft` represent for `n` samples with spacing `d`."""
    return array(np.fft.rfftfreq(n, d))


# The virtual GPU's transforms need no plans, so the cache of cuFFT's plans is empty here.
config = _Namespace(
    "cp.fft.config",
    enable_nd_planning=True,
    use_multi_gpus=False,
    clear_plan_cache=lambda: None,
    show_plan_cache_info=lambda: print("The virtual GPU's transforms need no plans: none are cached."),
)

__getattr__ = _module_getattr("cp.fft", globals())
