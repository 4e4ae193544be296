"""``cupyx.scipy.signal``: convolution and filters of signals, by SciPy on the host."""

from __future__ import annotations

from virtualgpu.cupyx.scipy._lifted import make_lifted_getattr

_TWO_ARRAY_FUNCTIONS = "convolve convolve2d correlate correlate2d fftconvolve oaconvolve sepfir2d"
_ONE_ARRAY_FUNCTIONS = "detrend hilbert medfilt medfilt2d resample savgol_filter wiener"

__getattr__ = make_lifted_getattr(
    "signal",
    {**dict.fromkeys(_ONE_ARRAY_FUNCTIONS.split(), 1), **dict.fromkeys(_TWO_ARRAY_FUNCTIONS.split(), 2)},
    globals(),
)
