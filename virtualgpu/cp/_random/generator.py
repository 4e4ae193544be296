"""``cp.random.Generator``: draw arrays of random numbers from a bit generator."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._random.bits import CurandGenerator
from virtualgpu.cp._routines.creation import asarray, empty
from virtualgpu.cp.cuda._memory.pool import check_free_memory

_REPLACEMENT_BY_METHOD = {
    "normal": "loc + scale * rng.standard_normal(size)",
    "lognormal": "cp.exp(mean + sigma * rng.standard_normal(size))",
    "rand": "rng.random(size)",
    "randn": "rng.standard_normal(size)",
    "randint": "rng.integers(low, high, size)",
    "permutation": "cp.argsort(rng.random(n))",
    "shuffle": "a[...] = a[cp.argsort(rng.random(len(a)))]",
    "choice": "a[rng.integers(0, len(a), size)]",
    "laplace": "cp.random.laplace(loc, scale, size)",
    "get_state": "kept = rng.bit_generator._state.get(), and rng.bit_generator._state.set(kept) to go on",
}
_REPLACEMENT_BY_METHOD["set_state"] = _REPLACEMENT_BY_METHOD["get_state"]


class Generator:
    """A generator of random arrays, which `default_rng` creates. The generator can be used while a graph is
    captured.

    `random`, `uniform`, `integers`, `standard_normal` and the exponential distribution return the numbers
    of a real GPU. The other distributions are correct, but their numbers differ from those of a real GPU.

    Parameters
    ----------
    bit_generator : Philox4x3210, XORWOW or MRG32k3a
        Source of the random bits.
    """

    def __init__(self, bit_generator: Any) -> None:
        if not isinstance(bit_generator, CurandGenerator):
            raise TypeError(
                "A Generator draws from a bit generator of cp.random, not from "
                f"{type(bit_generator).__name__}. Write cp.random.Generator(cp.random.Philox4x3210(seed)) or "
                "cp.random.default_rng(seed)."
            )
        self.bit_generator = bit_generator

    def __repr__(self) -> str:
        return f"Generator({self.bit_generator!r})"

    def __getattr__(self, name: str) -> Any:
        if name in _REPLACEMENT_BY_METHOD:
            raise AttributeError(
                f"CuPy's Generator has no {name}. Write {_REPLACEMENT_BY_METHOD[name]}.", obj=self, name=name
            )
        raise AttributeError(f"'Generator' object has no attribute '{name}'", obj=self, name=name)

    def random(self, size: Any = None, dtype: Any = np.float64, out: ndarray | None = None) -> ndarray:
        """Draw samples from the uniform distribution over ``[0, 1)``."""
        if out is not None:
            _check_output(dtype, size, out)
            size = out.shape if size is None else size
        values = self._draw_uniform(size, dtype)
        if out is None:
            return values.astype(dtype, copy=False)
        out[...] = values
        return out

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None, dtype: Any = np.float64) -> ndarray:
        """Draw samples from the uniform distribution over ``[low, high)``."""
        low = asarray(low)
        high = asarray(high)
        shape = np.broadcast_shapes(low.shape, high.shape) if size is None else size
        result: ndarray = low + (high - low) * self._draw_uniform(shape, dtype)
        return result.astype(dtype, copy=False)

    def integers(
        self, low: Any, high: Any = None, size: Any = None, dtype: Any = np.int64, endpoint: bool = False
    ) -> ndarray:
        """Draw integers from ``[low, high)``, or up to and including `high` with ``endpoint=True``."""
        lowest, highest = (0, int(low)) if high is None else (int(low), int(high))
        highest -= not endpoint
        integer_dtype: Any = np.dtype(dtype)
        bounds = np.iinfo(integer_dtype)
        if lowest > highest:
            raise ValueError("low >= high")
        if lowest < bounds.min:
            raise ValueError(f"low is out of bounds for {integer_dtype.name}")
        if highest > bounds.max:
            raise ValueError(f"high is out of bounds for {integer_dtype.name}")
        needs_64_bits = highest - lowest > 0xFFFFFFFF
        values = _make_empty_array(size, np.uint64 if needs_64_bits else np.uint32)
        self._draw("random_interval_64" if needs_64_bits else "random_interval_32", values, highest - lowest)
        return _add_offset(values, lowest, integer_dtype)

    def standard_normal(
        self, size: Any = None, dtype: Any = np.float64, out: ndarray | None = None
    ) -> ndarray:
        """Draw samples from the normal distribution with mean 0 and standard deviation 1."""
        if out is not None:
            _check_output(dtype, size, out)
        output_dtype = np.dtype(dtype)
        if output_dtype.char not in "fd":
            raise TypeError(f"Unsupported dtype {output_dtype.name} for standard_normal")
        result = _make_empty_array(size, output_dtype) if out is None else out
        self._draw("random_normal" if output_dtype.char == "d" else "random_normal_float", result)
        return result

    def standard_exponential(
        self, size: Any = None, dtype: Any = np.float64, method: str = "inv", out: ndarray | None = None
    ) -> ndarray:
        """Draw samples from the exponential distribution with mean 1."""
        if method == "zig":
            raise NotImplementedError("Ziggurat method is not supported")
        if out is not None:
            _check_output(dtype, size, out)
            size = out.shape if size is None else size
        values = _make_empty_array(size, np.float64)
        self._draw("random_exponential", values)
        if out is None:
            return values.astype(dtype, copy=False)
        out[...] = values
        return out

    def exponential(self, scale: Any = 1.0, size: Any = None) -> ndarray:
        """Draw samples from an exponential distribution with mean `scale`."""
        shape = np.shape(scale) if size is None else size
        result: ndarray = self.standard_exponential(shape) * scale
        return result

    def beta(self, a: Any, b: Any, size: Any = None, dtype: Any = np.float64) -> ndarray:
        """Draw samples from a beta distribution over ``[0, 1]`` with mean ``a / (a + b)``."""
        return self._sample_with_numpy("beta", size, dtype, a, b)

    def binomial(self, n: Any, p: Any, size: Any = None) -> ndarray:
        """Draw samples from a binomial distribution with `n` trials and success probability `p`."""
        return self._sample_with_numpy("binomial", size, np.int64, n, p)

    def chisquare(self, df: Any, size: Any = None) -> ndarray:
        """Draw samples from a chi-squared distribution with `df` degrees of freedom."""
        return self._sample_with_numpy("chisquare", size, np.float64, df)

    def dirichlet(self, alpha: Any, size: Any = None) -> ndarray:
        """Draw samples from a Dirichlet distribution. Each sample is a vector of fractions whose sum is 1."""
        return self._sample_with_numpy("dirichlet", size, np.float64, alpha)

    def f(self, dfnum: Any, dfden: Any, size: Any = None) -> ndarray:
        """Draw samples from an F distribution with `dfnum` and `dfden` degrees of freedom."""
        return self._sample_with_numpy("f", size, np.float64, dfnum, dfden)

    def gamma(self, shape: Any, scale: Any = 1.0, size: Any = None) -> ndarray:
        """Draw samples from a gamma distribution with mean ``shape * scale``."""
        return self._sample_with_numpy("gamma", size, np.float64, shape, scale)

    def geometric(self, p: Any, size: Any = None) -> ndarray:
        """Draw samples from a geometric distribution with success probability `p`. Each sample is the number
        of trials up to the first success.
        """
        return self._sample_with_numpy("geometric", size, np.int64, p)

    def hypergeometric(self, ngood: Any, nbad: Any, nsample: Any, size: Any = None) -> ndarray:
        """Draw samples from a hypergeometric distribution. Each sample is the number of good items among
        `nsample` items drawn without replacement.
        """
        return self._sample_with_numpy("hypergeometric", size, np.int64, ngood, nbad, nsample)

    def logseries(self, p: Any, size: Any = None) -> ndarray:
        """Draw samples from a logarithmic series distribution."""
        return self._sample_with_numpy("logseries", size, np.int64, p)

    def poisson(self, lam: Any = 1.0, size: Any = None) -> ndarray:
        """Draw samples from a Poisson distribution with mean `lam`."""
        return self._sample_with_numpy("poisson", size, np.int64, lam)

    def power(self, a: Any, size: Any = None) -> ndarray:
        """Draw samples from a power distribution over ``[0, 1]`` with exponent ``a - 1``."""
        return self._sample_with_numpy("power", size, np.float64, a)

    def standard_gamma(self, shape: Any, size: Any = None, dtype: Any = np.float64) -> ndarray:
        """Draw samples from a gamma distribution with mean `shape`."""
        return self._sample_with_numpy("standard_gamma", size, dtype, shape)

    def _draw(self, kernel: str, out: ndarray, maximum: int = 0) -> None:
        self.bit_generator._launch_draw(kernel, out, maximum)

    def _draw_uniform(self, size: Any, dtype: Any) -> ndarray:
        is_double = np.dtype(dtype).char == "d"
        values = _make_empty_array(size, np.float64 if is_double else np.float32)
        self._draw("random_uniform" if is_double else "random_uniform_float", values)
        return values

    def _sample_with_numpy(self, name: str, size: Any, dtype: Any, *parameters: Any) -> ndarray:
        """Return samples that NumPy draws from a distribution, with a seed from the bit generator."""
        parameter_values = [
            parameter._host if isinstance(parameter, ndarray) else parameter for parameter in parameters
        ]
        if size is not None:
            check_free_memory(math.prod(np.atleast_1d(size).tolist()) * np.dtype(dtype).itemsize)
        seeds = empty(4, np.uint32)
        self._draw("random_raw", seeds)

        def compute() -> Any:
            generator = np.random.Generator(np.random.Philox(seeds._host.tolist()))
            return np.asarray(getattr(generator, name)(*parameter_values, size=size), dtype=dtype)

        return ndarray._from_library_kernel(f"random_{name}", compute(), compute, reads=(seeds,))


def _make_empty_array(size: Any, dtype: Any) -> ndarray:
    return empty(() if size is None else size, dtype)


def _add_offset(values: ndarray, offset: int, dtype: np.dtype[Any]) -> ndarray:
    """Return ``offset + values``, computed in integers that are as wide as the result."""

    def compute_sum() -> Any:
        return (values._host.astype(np.uint64) + np.uint64(offset % 2**64)).astype(dtype)

    result: ndarray = ndarray._from_library_kernel(
        "cupy_add", compute_sum(), compute_sum, values.nbytes, reads=(values,)
    )
    return result


def _check_output(dtype: Any, size: Any, out: ndarray) -> None:
    expected_dtype = np.dtype(dtype)
    if out.dtype != expected_dtype:
        raise TypeError(
            f"Supplied output array has the wrong type. Expected {expected_dtype.name}, got {out.dtype.name}"
        )
    if not (out.flags.c_contiguous or out.flags.f_contiguous):
        raise ValueError("Supplied output array is not contiguous, writable or aligned.")
    if size is not None and tuple(np.atleast_1d(size).tolist()) != out.shape:
        raise ValueError("size must match out.shape when used together")
