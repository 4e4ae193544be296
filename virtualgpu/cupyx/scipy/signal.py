"""``cupyx.scipy.signal``: convolution and filters of signals, by SciPy on the host."""

from __future__ import annotations

from virtualgpu.cupyx.scipy._lifted import lifted

_TWO_ARRAYS = "convolve convolve2d correlate correlate2d fftconvolve oaconvolve sepfir2d"
_ONE_ARRAY = "detrend hilbert medfilt medfilt2d resample savgol_filter wiener"

__getattr__ = lifted(
    "signal", {**dict.fromkeys(_ONE_ARRAY.split(), 1), **dict.fromkeys(_TWO_ARRAYS.split(), 2)}, globals()
)
