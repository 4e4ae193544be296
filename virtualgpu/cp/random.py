"""``cp.random``: random arrays, reproducible by seed.

Numbers come from NumPy's generators, so the same seed gives the same array on every computer, but not
the array that cuRAND gives on a real GPU: compare distributions across the two, not numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import numpy as np

from virtualgpu.cp._core.arguments import check_device
from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._core.dtypes import checked_dtype
from virtualgpu.cp._core.library_kernels import run_kernel
from virtualgpu.cp._missing_names import module_getattr
from virtualgpu.cp.cuda._memory.pool import check_room
from virtualgpu.cp.cuda.stream import is_capturing
from virtualgpu.model import machine as _machine


def _size(size: Any) -> tuple[int, ...]:
    if size is None:
        return ()
    return (int(size),) if np.ndim(size) == 0 else tuple(int(n) for n in size)


def _parameter(value: Any) -> Any:
    return value._host if isinstance(value, ndarray) else value


def _refuse_captured() -> None:
    """A graph would repeat the same numbers: CuPy does not let cuRAND into one."""
    if is_capturing():
        raise NotImplementedError(
            "calling cuRAND API during stream capture is currently unsupported. Draw the numbers before "
            "begin_capture()."
        )


def _output(host: Any, dtype: Any, name: str, again: Callable[[], Any] | None = None) -> ndarray:
    """An array of numbers drawn; `again` draws others, at each launch of a graph that may have it."""
    if again is None:
        _refuse_captured()
    contents = np.asarray(host, dtype=checked_dtype(dtype))
    return ndarray._computed(f"curand_{name}", contents, again or (lambda: contents))


def _float_dtype(dtype: Any) -> np.dtype[Any]:
    kind: np.dtype[Any] = np.dtype(dtype)
    if kind.char not in "fd":
        raise TypeError("cupy.random only supports float32 and float64")
    return kind


class _Distributions:
    """Distributions that `RandomState` and `Generator` share."""

    _host: np.random.Generator
    _in_graphs = False  # whether a graph may draw: it then goes on where the last launch ended

    def _drawn(self, draw: Callable[[], Any], dtype: Any, name: str) -> ndarray:
        """An array of what `draw` gives."""
        if not (self._in_graphs and is_capturing()):
            return _output(draw(), dtype, name, draw if self._in_graphs else None)
        before = self._host.bit_generator.state
        try:
            return _output(draw(), dtype, name, draw)  # for its shape: nothing is drawn in a capture
        finally:
            self._host.bit_generator.state = before

    def _draw(self, name: str, size: Any, dtype: Any, *parameters: Any) -> ndarray:
        values = tuple(_parameter(value) for value in parameters)
        shape = None if size is None and any(np.ndim(v) for v in values) else _size(size)
        if shape is not None:
            check_room(math.prod(shape) * np.dtype(dtype).itemsize)
        return self._drawn(partial(getattr(self._host, name), *values, size=shape), dtype, name)

    def _draw_float(self, name: str, size: Any, dtype: Any) -> ndarray:
        kind = _float_dtype(dtype)
        shape = _size(size)
        check_room(math.prod(shape) * kind.itemsize)
        return self._drawn(partial(getattr(self._host, name), size=shape, dtype=kind), kind, name)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None, dtype: Any = float) -> ndarray:
        """Normal distribution with mean `loc` and standard deviation `scale`."""
        if np.ndim(loc) == np.ndim(scale) == 0:
            result: ndarray = self._draw_float("standard_normal", size, dtype) * scale + loc
            return result
        return self._draw("normal", size, dtype, loc, scale)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None, dtype: Any = float) -> ndarray:
        """Uniform distribution over ``[low, high)``."""
        if np.ndim(low) == np.ndim(high) == 0:
            result: ndarray = self._draw_float("random", size, dtype) * (high - low) + low
            return result
        return self._draw("uniform", size, dtype, low, high)

    def standard_normal(self, size: Any = None, dtype: Any = float) -> ndarray:
        """Normal distribution with mean 0 and standard deviation 1."""
        return self._draw_float("standard_normal", size, dtype)

    def exponential(self, scale: Any = 1.0, size: Any = None, dtype: Any = float) -> ndarray:
        """Exponential distribution with mean `scale`."""
        return self._draw("exponential", size, dtype, scale)

    def poisson(self, lam: Any = 1.0, size: Any = None, dtype: Any = np.int64) -> ndarray:
        """Poisson distribution with mean `lam`."""
        return self._draw("poisson", size, dtype, lam)

    def binomial(self, n: Any, p: Any, size: Any = None, dtype: Any = np.int64) -> ndarray:
        """Successes in `n` trials of probability `p`."""
        return self._draw("binomial", size, dtype, n, p)

    def permutation(self, a: Any) -> ndarray:
        """A random order of ``arange(a)``, or a shuffled copy of an array's first axis."""
        host = self._host.permutation(_parameter(a))
        return _output(host, host.dtype, "permutation")

    def shuffle(self, a: ndarray) -> None:
        """Shuffle an array along its first axis, in place."""
        if not isinstance(a, ndarray):
            raise TypeError("The array must be cupy.ndarray")
        check_device(a)
        _refuse_captured()
        name, moved = "curand_shuffle", 2 * a.nbytes
        run_kernel(a._mem.owner, name, moved, lambda: self._host.shuffle(a._host), 0.0, (a,), (a,))

    def choice(self, a: Any, size: Any = None, replace: bool = True, p: Any = None) -> ndarray:
        """A random sample of ``arange(a)`` or of a one-dimensional array."""
        host = np.asarray(self._host.choice(_parameter(a), _size(size), replace, _parameter(p)))
        return _output(host, host.dtype, "choice")


class RandomState(_Distributions):
    """A seeded source of random arrays with CuPy's classic methods.

    Parameters
    ----------
    seed : int, optional
        The same seed gives the same arrays; without one they differ from run to run.
    """

    def __init__(self, seed: Any = None, method: Any = None) -> None:
        self.seed(seed)

    def seed(self, seed: Any = None) -> None:
        """Start again from a seed."""
        if seed is not None and np.ndim(seed) == 0:
            seed = int(seed) % 2**64
        self._host = np.random.Generator(np.random.Philox(seed))

    def random_sample(self, size: Any = None, dtype: Any = float) -> ndarray:
        """Uniform distribution over ``[0, 1)``."""
        return self._draw_float("random", size, dtype)

    random = random_sample

    def rand(self, *size: int, dtype: Any = float) -> ndarray:
        """Uniform distribution over ``[0, 1)``; the arguments are the shape."""
        return self._draw_float("random", size, dtype)

    def randn(self, *size: int, dtype: Any = float) -> ndarray:
        """Standard normal distribution; the arguments are the shape."""
        return self._draw_float("standard_normal", size, dtype)

    def randint(self, low: Any, high: Any = None, size: Any = None, dtype: Any = int) -> ndarray:
        """Integers from ``[low, high)``; with one bound, from ``[0, low)``."""
        if high is None:
            low, high = 0, low
        kind: Any = np.dtype(dtype)
        host = self._host.integers(_parameter(low), _parameter(high), _size(size), dtype=kind)
        return _output(host, kind, "randint")


class Generator(_Distributions):
    """A source of random arrays as `default_rng` makes it. A graph may draw from it, as CuPy's kernels do."""

    _in_graphs = True

    def __init__(self, bit_generator: Any) -> None:
        self.bit_generator = bit_generator

    @property
    def bit_generator(self) -> Any:
        """Where the random bits come from; another one may be set."""
        return self._host.bit_generator

    @bit_generator.setter
    def bit_generator(self, bit_generator: Any) -> None:
        self._host = np.random.Generator(bit_generator)

    def random(self, size: Any = None, dtype: Any = np.float64, out: ndarray | None = None) -> ndarray:
        """Uniform distribution over ``[0, 1)``."""
        result = self._draw_float("random", out.shape if out is not None else size, dtype)
        if out is None:
            return result
        out[...] = result
        return out

    def integers(
        self, low: Any, high: Any = None, size: Any = None, dtype: Any = np.int64, endpoint: bool = False
    ) -> ndarray:
        """Integers from ``[low, high)``, or up to and including `high` with ``endpoint=True``."""
        kind: Any = np.dtype(dtype)
        bounds = _parameter(low), None if high is None else _parameter(high)
        draw = partial(self._host.integers, *bounds, _size(size), kind, endpoint)
        return self._drawn(draw, kind, "integers")


class Philox4x3210(np.random.Philox):
    """Philox, a counter-based generator (here NumPy's Philox 4x64)."""


class XORWOW(np.random.PCG64):
    """Stands for cuRAND's XORWOW; the numbers are those of NumPy's PCG64."""


def default_rng(seed: Any = None) -> Generator:
    """A generator; the same seed gives the same arrays."""
    if isinstance(seed, Generator):
        return seed
    if isinstance(seed, np.random.BitGenerator):
        return Generator(seed)
    return Generator(XORWOW(seed))


def get_random_state() -> RandomState:
    """The current device's state behind the functions of this module."""
    machine = _machine.current()
    states = machine.random_states
    device_id = machine.current_device_id
    if device_id not in states:
        states[device_id] = RandomState()
    state: RandomState = states[device_id]
    return state


def _of_current_state(name: str) -> Callable[..., Any]:
    """A method of `RandomState` as a function that draws from the current device's state."""
    method = getattr(RandomState, name)

    def draw(*args: Any, **kwargs: Any) -> Any:
        return getattr(get_random_state(), name)(*args, **kwargs)

    draw.__name__, draw.__qualname__, draw.__doc__ = name, name, method.__doc__
    told = signature(method)
    draw.__signature__ = told.replace(parameters=[*told.parameters.values()][1:])  # type: ignore[attr-defined]
    return draw


seed, rand, randn, randint = map(_of_current_state, ("seed", "rand", "randn", "randint"))
random = random_sample = ranf = sample = _of_current_state("random")
uniform, normal, standard_normal = map(_of_current_state, ("uniform", "normal", "standard_normal"))
exponential, poisson, binomial = map(_of_current_state, ("exponential", "poisson", "binomial"))
permutation, shuffle, choice = map(_of_current_state, ("permutation", "shuffle", "choice"))

__all__ = [
    *("Generator", "Philox4x3210", "RandomState", "XORWOW", "binomial", "choice", "default_rng"),
    *("exponential", "get_random_state", "normal", "permutation", "poisson", "rand", "randint", "randn"),
    *("random", "random_sample", "ranf", "sample", "seed", "shuffle", "standard_normal", "uniform"),
]
__getattr__ = module_getattr("cp.random", globals())
