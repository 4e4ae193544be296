"""``cupyx.scipy.ndimage``: filters, measurements and interpolation of images, by SciPy on the host."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from virtualgpu.cp.cuda.stream import get_current_stream
from virtualgpu.cupyx.scipy._lifted import make_lifted_getattr

_ONE_ARRAY_FUNCTIONS = (
    "gaussian_filter gaussian_filter1d gaussian_gradient_magnitude gaussian_laplace uniform_filter "
    "uniform_filter1d median_filter maximum_filter percentile_filter rank_filter sobel "
    "minimum_filter laplace label zoom rotate shift prewitt spline_filter binary_dilation binary_erosion "
    "binary_opening binary_closing binary_fill_holes grey_dilation grey_erosion mean "
    "sum_labels maximum minimum variance standard_deviation center_of_mass fourier_gaussian "
    "fourier_shift fourier_uniform"
)
_TWO_ARRAY_FUNCTIONS = "convolve convolve1d correlate correlate1d map_coordinates affine_transform"


def _convert_label_count(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate `label` so that it returns the number of features as a Python int; the host waits for it."""

    @functools.wraps(function)
    def label(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        get_current_stream().synchronize()
        return (result[0], int(result[1])) if isinstance(result, tuple) else int(result)

    return label


__getattr__ = make_lifted_getattr(
    "ndimage",
    {**dict.fromkeys(_ONE_ARRAY_FUNCTIONS.split(), 1), **dict.fromkeys(_TWO_ARRAY_FUNCTIONS.split(), 2)},
    globals(),
    {"label": _convert_label_count},
)
