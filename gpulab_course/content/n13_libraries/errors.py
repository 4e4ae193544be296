r"""Sizes of rounding errors: typical errors from a model of a random walk, and upper bounds.

With u the unit roundoff of a format (half the distance from 1 to the next number):

- The error of rounding s is between -ulp(s) / 2 and ulp(s) / 2, where ulp(s) is the distance of s's
  neighbours. If it is uniformly distributed, its RMS is ulp(s) / sqrt(12) (Widrow and Kollar, *Quantization
  Noise*, Cambridge 2008).
- A sum of n numbers, one after the other, is rounded n - 1 times, at each partial sum s_i. If these errors
  are independent, their squares add up: RMS^2 = sum over i of E[ulp(s_i)^2] / 12 (a random walk: Wilkinson
  1963; Higham and Mary, *A new approach to probabilistic rounding error analysis*, SIAM J. Sci. Comput. 41,
  2019).
- In the worst case all errors have the same sign: \\|error\\| <= (n - 1) u sum \\|x_i\\|, and
  n u sum \\|x_i y_i\\| for a product of vectors (Jeannerod and Rump, *Improved error bounds for inner
  products in floating-point arithmetic*, SIAM J. Matrix Anal. Appl. 34, 2013).

The expectation over partial sums that are normally distributed is exact, a sum over powers of two.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.analysis.formats import FP32, Format

DoubleArray = npt.NDArray[np.float64]


def compute_mean_square_ulp(number_format: Format, mean: float = 0.0, spread: float = 1.0) -> float:
    """Return the mean of ulp(s)^2 if s is normally distributed with this mean and standard deviation."""
    if not spread:
        _, exponent = math.frexp(mean)
        return float(4.0 ** (max(exponent - 1, number_format.least_exponent) - number_format.fraction_bits))
    top_exponent = math.frexp(abs(mean) + 10 * spread)[1]
    exponents = np.arange(max(top_exponent - 60, number_format.least_exponent), top_exponent + 1)

    def compute_probability_below(max_magnitude: float) -> float:
        """Return the probability that the magnitude of s is less than `max_magnitude`."""
        upper_bound, lower_bound = (
            (sign * max_magnitude - mean) / (spread * math.sqrt(2)) for sign in (1, -1)
        )
        return (math.erf(upper_bound) - math.erf(lower_bound)) / 2

    probabilities = np.diff(
        [0.0, *(compute_probability_below(2.0 ** int(exponent + 1)) for exponent in exponents)]
    )
    return float((probabilities * 4.0 ** (exponents - number_format.fraction_bits)).sum())


def walk_rms(n: int, number_format: Format, mean: float = 0.0, spread: float = 1.0) -> float:
    """Return the RMS error of a sum of n random numbers that is rounded after every addition.

    Parameters
    ----------
    n
        The number of summands.
    number_format
        The format to which each partial sum is rounded.
    mean, spread
        The mean and the standard deviation of the numbers, which are independent. Partial sums have the mean
        i mean and the standard deviation sqrt(i) spread.
    """
    # Partial sums change slowly: a few hundred values of i represent their neighbours.
    range_bounds = np.unique(np.geomspace(2, n + 1, 400).astype(int)) if n > 400 else np.arange(2, n + 2)
    sum_squares = 0.0
    for range_start, range_end in itertools.pairwise(range_bounds):
        middle_index = (range_start + range_end - 1) / 2
        sum_squares += (range_end - range_start) * compute_mean_square_ulp(
            number_format, middle_index * mean, math.sqrt(middle_index) * spread
        )
    return math.sqrt(sum_squares / 12)


def worst_share(n: int, number_format: Format) -> float:
    """Return (n - 1) u, the upper bound of the error of a sum relative to the sum of the terms'
    magnitudes.
    """
    return (n - 1) * number_format.roundoff


def product_rms(k: int, input_format: Format, sum_format: Format = FP32) -> float:
    """Return the relative RMS error of one element in the product of two standard normal matrices.

    Parameters
    ----------
    k
        The number of products in a sum.
    input_format
        The format of both matrices. It adds 2 E[ulp(x)^2] / 12 per product, relative to its mean square, 1.
    sum_format
        The format to which each partial sum is rounded.
    """
    input_error = k * 2 * compute_mean_square_ulp(input_format) / 12
    return math.sqrt((input_error + walk_rms(k, sum_format) ** 2) / k)


def measure_sum_errors(numbers: Any, number_format: Format) -> DoubleArray:
    """Return the rounding error of the sum of each row, if each addition is rounded to the number format.

    `numbers` is a matrix with one row of n numbers per random seed.
    """
    x = number_format.round_all(numbers)
    running_sums = x[:, 0].copy()
    for column_index in range(1, x.shape[1]):
        running_sums = number_format.round_all(running_sums + x[:, column_index])
    # Exact sums; for numbers of at most FP32's bits, errors of a double are far below the measured ones.
    return np.asarray(running_sums - np.array([math.fsum(row) for row in x]))
