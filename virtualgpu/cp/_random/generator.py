"""``cp.random.Generator``: arrays of random numbers from a bit generator."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._random.bits import CurandGenerator
from virtualgpu.cp._routines.creation import asarray, empty
from virtualgpu.cp.cuda._memory.pool import check_room

_INSTEAD = {
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
_INSTEAD["set_state"] = _INSTEAD["get_state"]


class Generator:
    """A source of random arrays as `default_rng` makes it. A graph may draw from it, as CuPy's kernels do.

    `random`, `uniform`, `integers`, `standard_normal` and the exponential distribution give a real GPU's
    numbers; the other distributions are right as distributions, with numbers of their own.

    Parameters
    ----------
    bit_generator : Philox4x3210, XORWOW or MRG32k3a
        Where its bits come from.
    """

    def __init__(self, bit_generator: Any) -> None:
        if not isinstance(bit_generator, CurandGenerator):
            raise TypeError(
                "A Generator draws from a bit generator of cp.random, not from "
                f"{type(bit_generator).__name__}: write cp.random.Generator(cp.random.Philox4x3210(seed)) or "
                "cp.random.default_rng(seed)."
            )
        self.bit_generator = bit_generator

    def __repr__(self) -> str:
        return f"Generator({self.bit_generator!r})"

    def __getattr__(self, name: str) -> Any:
        if name in _INSTEAD:
            raise AttributeError(
                f"CuPy's Generator has no {name}: write {_INSTEAD[name]}.", obj=self, name=name
            )
        raise AttributeError(f"'Generator' object has no attribute '{name}'", obj=self, name=name)

    def random(self, size: Any = None, dtype: Any = np.float64, out: ndarray | None = None) -> ndarray:
        """Uniform distribution over ``[0, 1)``."""
        if out is not None:
            _check_output(dtype, size, out)
            size = out.shape if size is None else size
        drawn = self._uniform(size, dtype)
        if out is None:
            return drawn.astype(dtype, copy=False)
        out[...] = drawn
        return out

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None, dtype: Any = np.float64) -> ndarray:
        """Uniform distribution over ``[low, high)``."""
        low = asarray(low)
        high = asarray(high)
        shape = np.broadcast_shapes(low.shape, high.shape) if size is None else size
        result: ndarray = low + (high - low) * self._uniform(shape, dtype)
        return result.astype(dtype, copy=False)

    def integers(
        self, low: Any, high: Any = None, size: Any = None, dtype: Any = np.int64, endpoint: bool = False
    ) -> ndarray:
        """Integers from ``[low, high)``, or up to and including `high` with ``endpoint=True``."""
        first, last = (0, int(low)) if high is None else (int(low), int(high))
        last -= not endpoint
        kind: Any = np.dtype(dtype)
        bounds = np.iinfo(kind)
        if first > last:
            raise ValueError("low >= high")
        if first < bounds.min:
            raise ValueError(f"low is out of bounds for {kind.name}")
        if last > bounds.max:
            raise ValueError(f"high is out of bounds for {kind.name}")
        wide = last - first > 0xFFFFFFFF
        drawn = _empty(size, np.uint64 if wide else np.uint32)
        self._draw("random_interval_64" if wide else "random_interval_32", drawn, last - first)
        return _shifted(drawn, first, kind)

    def standard_normal(
        self, size: Any = None, dtype: Any = np.float64, out: ndarray | None = None
    ) -> ndarray:
        """Normal distribution with mean 0 and standard deviation 1."""
        if out is not None:
            _check_output(dtype, size, out)
        kind = np.dtype(dtype)
        if kind.char not in "fd":
            raise TypeError(f"Unsupported dtype {kind.name} for standard_normal")
        result = _empty(size, kind) if out is None else out
        self._draw("random_normal" if kind.char == "d" else "random_normal_float", result)
        return result

    def standard_exponential(
        self, size: Any = None, dtype: Any = np.float64, method: str = "inv", out: ndarray | None = None
    ) -> ndarray:
        """Exponential distribution with mean 1."""
        if method == "zig":
            raise NotImplementedError("Ziggurat method is not supported")
        if out is not None:
            _check_output(dtype, size, out)
            size = out.shape if size is None else size
        drawn = _empty(size, np.float64)
        self._draw("random_exponential", drawn)
        if out is None:
            return drawn.astype(dtype, copy=False)
        out[...] = drawn
        return out

    def exponential(self, scale: Any = 1.0, size: Any = None) -> ndarray:
        """Exponential distribution with mean `scale`."""
        shape = np.shape(scale) if size is None else size
        result: ndarray = self.standard_exponential(shape) * scale
        return result

    def beta(self, a: Any, b: Any, size: Any = None, dtype: Any = np.float64) -> ndarray:
        """Beta distribution over ``[0, 1]`` with mean ``a / (a + b)``."""
        return self._sampled("beta", size, dtype, a, b)

    def binomial(self, n: Any, p: Any, size: Any = None) -> ndarray:
        """Successes in `n` trials of probability `p`."""
        return self._sampled("binomial", size, np.int64, n, p)

    def chisquare(self, df: Any, size: Any = None) -> ndarray:
        """Chi-squared distribution with `df` degrees of freedom."""
        return self._sampled("chisquare", size, np.float64, df)

    def dirichlet(self, alpha: Any, size: Any = None) -> ndarray:
        """Dirichlet distribution: shares that add up to 1."""
        return self._sampled("dirichlet", size, np.float64, alpha)

    def f(self, dfnum: Any, dfden: Any, size: Any = None) -> ndarray:
        """F distribution."""
        return self._sampled("f", size, np.float64, dfnum, dfden)

    def gamma(self, shape: Any, scale: Any = 1.0, size: Any = None) -> ndarray:
        """Gamma distribution with mean ``shape * scale``."""
        return self._sampled("gamma", size, np.float64, shape, scale)

    def geometric(self, p: Any, size: Any = None) -> ndarray:
        """Trials up to and including the first success, of probability `p` each."""
        return self._sampled("geometric", size, np.int64, p)

    def hypergeometric(self, ngood: Any, nbad: Any, nsample: Any, size: Any = None) -> ndarray:
        """Good ones among `nsample` drawn without putting back."""
        return self._sampled("hypergeometric", size, np.int64, ngood, nbad, nsample)

    def logseries(self, p: Any, size: Any = None) -> ndarray:
        """Logarithmic series distribution."""
        return self._sampled("logseries", size, np.int64, p)

    def poisson(self, lam: Any = 1.0, size: Any = None) -> ndarray:
        """Poisson distribution with mean `lam`."""
        return self._sampled("poisson", size, np.int64, lam)

    def power(self, a: Any, size: Any = None) -> ndarray:
        """Power distribution over ``[0, 1]`` with exponent ``a - 1``."""
        return self._sampled("power", size, np.float64, a)

    def standard_gamma(self, shape: Any, size: Any = None, dtype: Any = np.float64) -> ndarray:
        """Gamma distribution with mean `shape`."""
        return self._sampled("standard_gamma", size, dtype, shape)

    def _draw(self, kernel: str, out: ndarray, most: int = 0) -> None:
        self.bit_generator._draw(kernel, out, most)

    def _uniform(self, size: Any, dtype: Any) -> ndarray:
        double = np.dtype(dtype).char == "d"
        drawn = _empty(size, np.float64 if double else np.float32)
        self._draw("random_uniform" if double else "random_uniform_float", drawn)
        return drawn

    def _sampled(self, name: str, size: Any, dtype: Any, *parameters: Any) -> ndarray:
        """NumPy's numbers of a distribution, seeded with what the bit generator gives."""
        values = [p._host if isinstance(p, ndarray) else p for p in parameters]
        if size is not None:
            check_room(math.prod(np.atleast_1d(size).tolist()) * np.dtype(dtype).itemsize)
        seeds = empty(4, np.uint32)
        self._draw("random_raw", seeds)

        def again() -> Any:
            host = np.random.Generator(np.random.Philox(seeds._host.tolist()))
            return np.asarray(getattr(host, name)(*values, size=size), dtype=dtype)

        return ndarray._computed(f"random_{name}", again(), again, reads=(seeds,))


def _empty(size: Any, dtype: Any) -> ndarray:
    return empty(() if size is None else size, dtype)


def _shifted(drawn: ndarray, first: int, kind: np.dtype[Any]) -> ndarray:
    """``first + drawn``, worked out in whole numbers as wide as the result."""

    def added() -> Any:
        return (drawn._host.astype(np.uint64) + np.uint64(first % 2**64)).astype(kind)

    result: ndarray = ndarray._computed("cupy_add", added(), added, drawn.nbytes, reads=(drawn,))
    return result


def _check_output(dtype: Any, size: Any, out: ndarray) -> None:
    kind = np.dtype(dtype)
    if out.dtype != kind:
        raise TypeError(
            f"Supplied output array has the wrong type. Expected {kind.name}, got {out.dtype.name}"
        )
    if not (out.flags.c_contiguous or out.flags.f_contiguous):
        raise ValueError("Supplied output array is not contiguous, writable or aligned.")
    if size is not None and tuple(np.atleast_1d(size).tolist()) != out.shape:
        raise ValueError("size must match out.shape when used together")
