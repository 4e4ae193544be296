"""``cupyx.scipy.fft``: the transforms of ``cp.fft``, and fast transform lengths."""

from __future__ import annotations

from virtualgpu.cp._missing_names import make_module_getattr as _module_getattr
from virtualgpu.cp.fft import (
    fft,
    fft2,
    fftfreq,
    fftn,
    fftshift,
    hfft,
    ifft,
    ifft2,
    ifftn,
    ifftshift,
    ihfft,
    irfft,
    irfft2,
    irfftn,
    rfft,
    rfft2,
    rfftfreq,
    rfftn,
)

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "next_fast_len",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]
_FAST_PRIMES = (2, 3, 5, 7)


def next_fast_len(target: int, real: bool = False) -> int:
    """Return the smallest length of at least `target` whose prime factors are only 2, 3, 5 and 7.

    cuFFT has special kernels for these lengths (cuFFT documentation, "Accuracy and Performance").

    Parameters
    ----------
    target
        The minimum length.
    real
        Whether the transform is of real numbers; without effect, as in CuPy.

    Raises
    ------
    ValueError
        If `target` is negative.

    Examples
    --------
    >>> cupyx.scipy.fft.next_fast_len(997)
    1000
    """
    if target < 0:
        raise ValueError("Target length must be positive.")
    length = max(int(target), 1) if target else 0
    while length > 1 and not _is_fast_length(length):
        length += 1
    return length


def _is_fast_length(length: int) -> bool:
    for prime in _FAST_PRIMES:
        while length % prime == 0:
            length //= prime
    return length == 1


__getattr__ = _module_getattr("cupyx.scipy.fft", globals())
