"""``cp.random``: random arrays, reproducible by seed.

`Generator` returns the numbers that cuRAND's device API returns on a real GPU. The functions of this module
and `RandomState` use NumPy's numbers: the same seed returns the same array on every computer, but not the
array of cuRAND's host API on a real GPU. Compare distributions there, not numbers.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np

from virtualgpu.cp._core.arguments import check_device
from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._core.dtypes import check_dtype
from virtualgpu.cp._core.library_kernels import run_kernel
from virtualgpu.cp._missing_names import make_module_getattr
from virtualgpu.cp._random.bits import XORWOW, BitGenerator
from virtualgpu.cp._random.bits import MRG32k3a as MRG32k3a
from virtualgpu.cp._random.bits import Philox4x3210 as Philox4x3210
from virtualgpu.cp._random.generator import Generator
from virtualgpu.cp.cuda._memory.pool import check_free_memory
from virtualgpu.cp.cuda.stream import is_capturing
from virtualgpu.model import machine as _machine

_NO_STATE_REMEDY = (
    "Its state cannot be read. To repeat a part of a program, set the seed at its beginning, or use a "
    "Generator, whose states can be saved."
)


def _parse_size(size: Any) -> tuple[int, ...]:
    if size is None:
        return ()
    return (int(size),) if np.ndim(size) == 0 else tuple(int(n) for n in size)


def _convert_parameter(value: Any) -> Any:
    return value._host if isinstance(value, ndarray) else value


def _check_no_capture() -> None:
    """Raise CuPy's error if a stream captures a graph, because the graph would repeat the same numbers."""
    if is_capturing():
        raise NotImplementedError(
            "calling cuRAND API during stream capture is currently unsupported. Draw the numbers before "
            "begin_capture()."
        )


def _make_device_array(host_samples: Any, dtype: Any, name: str) -> ndarray:
    _check_no_capture()
    host_values = np.asarray(host_samples, dtype=check_dtype(dtype))
    return ndarray._from_library_kernel(f"curand_{name}", host_values, lambda: host_values)


def _check_float_dtype(dtype: Any) -> np.dtype[Any]:
    float_dtype: np.dtype[Any] = np.dtype(dtype)
    if float_dtype.char not in "fd":
        raise TypeError("cupy.random only supports float32 and float64")
    return float_dtype


class RandomState:
    """A seeded generator of random arrays with the methods of CuPy's ``RandomState``.

    Parameters
    ----------
    seed : int, optional
        The same seed produces the same arrays; without a seed they differ from run to run.
    """

    def __init__(self, seed: Any = None, method: Any = None) -> None:
        self.seed(seed)

    def __repr__(self) -> str:
        return (
            "RandomState(NumPy's numbers; a real GPU, where cuRAND uses XORWOW, draws other numbers from the "
            "same seed)"
        )

    def __reduce__(self) -> Any:
        raise TypeError(
            f"A RandomState cannot be pickled or copied; CuPy does not support it either. {_NO_STATE_REMEDY}"
        )

    def __getattr__(self, name: str) -> Any:
        if name in ("get_state", "set_state"):
            raise AttributeError(f"CuPy's RandomState has no {name}. {_NO_STATE_REMEDY}", obj=self, name=name)
        raise AttributeError(f"'RandomState' object has no attribute '{name}'", obj=self, name=name)

    def seed(self, seed: Any = None) -> None:
        """Restart the generator with a seed from 0 to 2**64 - 1. A seed that is a NumPy array is hashed
        first.
        """
        if isinstance(seed, np.ndarray):
            seed = int(hashlib.md5(seed.tobytes(), usedforsecurity=False).hexdigest()[:16], 16)
        elif seed is not None:
            if not isinstance(seed, (bool, int, np.integer, np.bool_)):
                raise TypeError(f"Seed must be an integer, not {seed!r}.")
            if not 0 <= int(seed) < 2**64:
                raise ValueError(f"Seed must be an integer between 0 and 2**64 - 1, not {seed}.")
            seed = int(seed)
        self._host = np.random.Generator(np.random.Philox(seed))

    def _draw_samples(self, name: str, size: Any, dtype: Any, *parameters: Any) -> ndarray:
        values = tuple(_convert_parameter(parameter) for parameter in parameters)
        shape = (
            None
            if size is None and any(np.ndim(parameter_value) for parameter_value in values)
            else _parse_size(size)
        )
        if shape is not None:
            check_free_memory(math.prod(shape) * np.dtype(dtype).itemsize)
        return _make_device_array(getattr(self._host, name)(*values, size=shape), dtype, name)

    def _draw_float_samples(self, name: str, size: Any, dtype: Any) -> ndarray:
        float_dtype = _check_float_dtype(dtype)
        shape = _parse_size(size)
        check_free_memory(math.prod(shape) * float_dtype.itemsize)
        return _make_device_array(getattr(self._host, name)(size=shape, dtype=float_dtype), float_dtype, name)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None, dtype: Any = float) -> ndarray:
        """Draw samples from a normal distribution with mean `loc` and standard deviation `scale`."""
        if np.ndim(loc) == np.ndim(scale) == 0:
            result: ndarray = self._draw_float_samples("standard_normal", size, dtype) * scale + loc
            return result
        return self._draw_samples("normal", size, dtype, loc, scale)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None, dtype: Any = float) -> ndarray:
        """Draw samples from the uniform distribution over ``[low, high)``."""
        if np.ndim(low) == np.ndim(high) == 0:
            result: ndarray = self._draw_float_samples("random", size, dtype) * (high - low) + low
            return result
        return self._draw_samples("uniform", size, dtype, low, high)

    def standard_normal(self, size: Any = None, dtype: Any = float) -> ndarray:
        """Draw samples from the normal distribution with mean 0 and standard deviation 1."""
        return self._draw_float_samples("standard_normal", size, dtype)

    def exponential(self, scale: Any = 1.0, size: Any = None, dtype: Any = float) -> ndarray:
        """Draw samples from an exponential distribution with mean `scale`."""
        return self._draw_samples("exponential", size, dtype, scale)

    def poisson(self, lam: Any = 1.0, size: Any = None, dtype: Any = np.int64) -> ndarray:
        """Draw samples from a Poisson distribution with mean `lam`."""
        return self._draw_samples("poisson", size, dtype, lam)

    def binomial(self, n: Any, p: Any, size: Any = None, dtype: Any = np.int64) -> ndarray:
        """Draw samples from a binomial distribution with `n` trials and success probability `p`."""
        return self._draw_samples("binomial", size, dtype, n, p)

    def lognormal(self, mean: Any = 0.0, sigma: Any = 1.0, size: Any = None, dtype: Any = float) -> ndarray:
        """Draw samples whose logarithm is normal with mean `mean` and standard deviation `sigma`."""
        return self._draw_samples("lognormal", size, dtype, mean, sigma)

    def laplace(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None, dtype: Any = float) -> ndarray:
        """Draw samples from a Laplace distribution, which decays exponentially on both sides of `loc`."""
        return self._draw_samples("laplace", size, dtype, loc, scale)

    def gamma(self, shape: Any, scale: Any = 1.0, size: Any = None, dtype: Any = float) -> ndarray:
        """Draw samples from a gamma distribution with mean ``shape * scale``."""
        return self._draw_samples("gamma", size, dtype, shape, scale)

    def beta(self, a: Any, b: Any, size: Any = None, dtype: Any = float) -> ndarray:
        """Draw samples from a beta distribution over ``[0, 1]`` with mean ``a / (a + b)``."""
        return self._draw_samples("beta", size, dtype, a, b)

    def geometric(self, p: Any, size: Any = None, dtype: Any = np.int64) -> ndarray:
        """Draw samples from a geometric distribution with success probability `p`. Each sample is the number
        of trials up to the first success.
        """
        return self._draw_samples("geometric", size, dtype, p)

    def permutation(self, a: Any) -> ndarray:
        """Return the numbers of ``arange(a)`` in random order, or a copy of an array shuffled along its first
        axis.
        """
        host_samples = self._host.permutation(_convert_parameter(a))
        return _make_device_array(host_samples, host_samples.dtype, "permutation")

    def shuffle(self, a: ndarray) -> None:
        """Shuffle an array along its first axis, in place."""
        if not isinstance(a, ndarray):
            raise TypeError("The array must be cupy.ndarray")
        check_device(a)
        _check_no_capture()
        name = "curand_shuffle"
        moved_bytes = 2 * a.nbytes
        device = _machine.current().current_device
        run_kernel(device, name, moved_bytes, lambda: self._host.shuffle(a._host), 0.0, (a,), (a,))

    def choice(self, a: Any, size: Any = None, replace: bool = True, p: Any = None) -> ndarray:
        """Return a random sample of ``arange(a)`` or of a one-dimensional array."""
        host_samples = np.asarray(
            self._host.choice(_convert_parameter(a), _parse_size(size), replace, _convert_parameter(p))
        )
        return _make_device_array(host_samples, host_samples.dtype, "choice")

    def random_sample(self, size: Any = None, dtype: Any = float) -> ndarray:
        """Draw samples from the uniform distribution over ``[0, 1)``."""
        return self._draw_float_samples("random", size, dtype)

    random = random_sample

    def rand(self, *size: int, dtype: Any = float) -> ndarray:
        """Draw samples from the uniform distribution over ``[0, 1)``. The positional arguments are the
        shape.
        """
        return self._draw_float_samples("random", size, dtype)

    def randn(self, *size: int, dtype: Any = float) -> ndarray:
        """Draw samples from the standard normal distribution. The positional arguments are the shape."""
        return self._draw_float_samples("standard_normal", size, dtype)

    def randint(self, low: Any, high: Any = None, size: Any = None, dtype: Any = int) -> ndarray:
        """Draw random integers from ``[low, high)``. With one bound, the range is ``[0, low)``."""
        if high is None:
            low, high = 0, low
        integer_dtype: Any = np.dtype(dtype)
        host_samples = self._host.integers(
            _convert_parameter(low), _convert_parameter(high), _parse_size(size), dtype=integer_dtype
        )
        return _make_device_array(host_samples, integer_dtype, "randint")


def default_rng(seed: Any = None) -> Generator:
    """Return a `Generator`, whose default bit generator is XORWOW. Equal seeds produce equal numbers."""
    if isinstance(seed, Generator):
        return seed
    return Generator(seed if isinstance(seed, BitGenerator) else XORWOW(seed))


def get_random_state() -> RandomState:
    """Return the random state of the current device. The functions of ``cp.random`` use this state."""
    machine = _machine.current()
    states = machine.random_states
    device_id = machine.current_device_id
    if device_id not in states:
        states[device_id] = RandomState()
    random_state: RandomState = states[device_id]
    return random_state


def set_random_state(rs: RandomState) -> None:
    """Set the random state that the functions of ``cp.random`` use on the current device."""
    if not isinstance(rs, RandomState):
        raise TypeError(f"Random state must be an instance of RandomState. Actual: {type(rs)}")
    machine = _machine.current()
    machine.random_states[machine.current_device_id] = rs


def reset_states() -> None:
    """Delete the random states of all devices. Each device then gets a new state with a random seed."""
    _machine.current().random_states.clear()


def _make_function(name: str) -> Callable[..., Any]:
    """Return a function that calls a method of the current device's `RandomState`."""
    method = getattr(RandomState, name)

    def draw_samples(*args: Any, **kwargs: Any) -> Any:
        return getattr(get_random_state(), name)(*args, **kwargs)

    draw_samples.__name__ = name
    draw_samples.__qualname__ = name
    draw_samples.__doc__ = method.__doc__
    method_signature = signature(method)
    draw_samples.__signature__ = method_signature.replace(  # type: ignore[attr-defined]
        parameters=[*method_signature.parameters.values()][1:]
    )
    return draw_samples


seed = _make_function("seed")
rand = _make_function("rand")
randn = _make_function("randn")
randint = _make_function("randint")
random = random_sample = ranf = sample = _make_function("random")
uniform = _make_function("uniform")
normal = _make_function("normal")
standard_normal = _make_function("standard_normal")
exponential = _make_function("exponential")
poisson = _make_function("poisson")
binomial = _make_function("binomial")
lognormal = _make_function("lognormal")
laplace = _make_function("laplace")
gamma = _make_function("gamma")
beta = _make_function("beta")
geometric = _make_function("geometric")
permutation = _make_function("permutation")
shuffle = _make_function("shuffle")
choice = _make_function("choice")

__all__ = [
    *("BitGenerator", "Generator", "MRG32k3a", "Philox4x3210", "RandomState", "XORWOW"),
    *("beta", "binomial", "choice", "default_rng", "reset_states", "set_random_state"),
    *(
        "exponential",
        "gamma",
        "geometric",
        "get_random_state",
        "laplace",
        "lognormal",
        "normal",
        "permutation",
        "poisson",
        "rand",
        "randint",
        "randn",
    ),
    *("random", "random_sample", "ranf", "sample", "seed", "shuffle", "standard_normal", "uniform"),
]
__getattr__ = make_module_getattr("cp.random", globals())
