"""``cp.fft``: discrete Fourier transforms through NumPy on the host."""

from __future__ import annotations

import numpy as np

from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._missing_names import module_getattr as _module_getattr
from virtualgpu.cp._routines.creation import array
from virtualgpu.cp._routines.from_numpy import lift

__all__ = [
    *("fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft"),
    *("irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn"),
]

fft, ifft, fft2, ifft2 = lift(np.fft.fft), lift(np.fft.ifft), lift(np.fft.fft2), lift(np.fft.ifft2)
fftn, ifftn, rfft, irfft = lift(np.fft.fftn), lift(np.fft.ifftn), lift(np.fft.rfft), lift(np.fft.irfft)
rfft2, irfft2, rfftn, irfftn = (
    lift(np.fft.rfft2),
    lift(np.fft.irfft2),
    lift(np.fft.rfftn),
    lift(np.fft.irfftn),
)
hfft, ihfft = lift(np.fft.hfft), lift(np.fft.ihfft)
fftshift, ifftshift = lift(np.fft.fftshift), lift(np.fft.ifftshift)


def fftfreq(n: int, d: float = 1.0) -> ndarray:
    """Frequencies of `fft`'s bins for `n` samples at distance `d`."""
    return array(np.fft.fftfreq(n, d))


def rfftfreq(n: int, d: float = 1.0) -> ndarray:
    """Frequencies of `rfft`'s bins for `n` samples at distance `d`."""
    return array(np.fft.rfftfreq(n, d))


__getattr__ = _module_getattr("cp.fft", globals())
