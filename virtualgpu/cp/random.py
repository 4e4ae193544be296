"""``cp.random``: random arrays, reproducible by seed.

`Generator` gives the numbers that cuRAND's device API gives on a real GPU. The functions of this module and
`RandomState` take NumPy's, so the same seed gives the same array on every computer, but not the array that
cuRAND's host API gives on a real GPU: compare distributions there, not numbers.
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
from virtualgpu.cp._core.dtypes import checked_dtype
from virtualgpu.cp._core.library_kernels import run_kernel
from virtualgpu.cp._missing_names import module_getattr
from virtualgpu.cp._random.bits import XORWOW, BitGenerator
from virtualgpu.cp._random.bits import MRG32k3a as MRG32k3a
from virtualgpu.cp._random.bits import Philox4x3210 as Philox4x3210
from virtualgpu.cp._random.generator import Generator
from virtualgpu.cp.cuda._memory.pool import check_room
from virtualgpu.cp.cuda.stream import is_capturing
from virtualgpu.model import machine as _machine

_UNSAVED = (
    "Where it stands cannot be read: seed it at the point to return to, and seed it there again, or draw "
    "from a Generator, whose states can be kept."
)


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


def _output(host: Any, dtype: Any, name: str) -> ndarray:
    _refuse_captured()
    contents = np.asarray(host, dtype=checked_dtype(dtype))
    return ndarray._computed(f"curand_{name}", contents, lambda: contents)


def _float_dtype(dtype: Any) -> np.dtype[Any]:
    kind: np.dtype[Any] = np.dtype(dtype)
    if kind.char not in "fd":
        raise TypeError("cupy.random only supports float32 and float64")
    return kind


class RandomState:
    """A seeded source of random arrays with CuPy's classic methods.

    Parameters
    ----------
    seed : int, optional
        The same seed gives the same arrays; without one they differ from run to run.
    """

    def __init__(self, seed: Any = None, method: Any = None) -> None:
        self.seed(seed)

    def __repr__(self) -> str:
        return (
            "RandomState(NumPy's numbers: the same seed gives the same ones here, and others on a real GPU, "
            "where cuRAND draws them with XORWOW)"
        )

    def __reduce__(self) -> Any:
        raise TypeError(f"A RandomState cannot be pickled or copied, and CuPy's cannot. {_UNSAVED}")

    def __getattr__(self, name: str) -> Any:
        if name in ("get_state", "set_state"):
            raise AttributeError(f"CuPy's RandomState has no {name}. {_UNSAVED}", obj=self, name=name)
        raise AttributeError(f"'RandomState' object has no attribute '{name}'", obj=self, name=name)

    def seed(self, seed: Any = None) -> None:
        """Start again from a seed between 0 and 2**64 - 1, or from the digest of a NumPy array."""
        if isinstance(seed, np.ndarray):
            seed = int(hashlib.md5(seed.tobytes(), usedforsecurity=False).hexdigest()[:16], 16)
        elif seed is not None:
            if not isinstance(seed, (bool, int, np.integer, np.bool_)):
                raise TypeError(f"Seed must be an integer, not {seed!r}.")
            if not 0 <= int(seed) < 2**64:
                raise ValueError(f"Seed must be an integer between 0 and 2**64 - 1, not {seed}.")
            seed = int(seed)
        self._host = np.random.Generator(np.random.Philox(seed))

    def _draw(self, name: str, size: Any, dtype: Any, *parameters: Any) -> ndarray:
        values = tuple(_parameter(value) for value in parameters)
        shape = None if size is None and any(np.ndim(v) for v in values) else _size(size)
        if shape is not None:
            check_room(math.prod(shape) * np.dtype(dtype).itemsize)
        return _output(getattr(self._host, name)(*values, size=shape), dtype, name)

    def _draw_float(self, name: str, size: Any, dtype: Any) -> ndarray:
        kind = _float_dtype(dtype)
        shape = _size(size)
        check_room(math.prod(shape) * kind.itemsize)
        return _output(getattr(self._host, name)(size=shape, dtype=kind), kind, name)

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

    def lognormal(self, mean: Any = 0.0, sigma: Any = 1.0, size: Any = None, dtype: Any = float) -> ndarray:
        """What has a logarithm of normal distribution, with that mean and standard deviation."""
        return self._draw("lognormal", size, dtype, mean, sigma)

    def laplace(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None, dtype: Any = float) -> ndarray:
        """Laplace distribution: exponential on both sides of `loc`."""
        return self._draw("laplace", size, dtype, loc, scale)

    def gamma(self, shape: Any, scale: Any = 1.0, size: Any = None, dtype: Any = float) -> ndarray:
        """Gamma distribution with mean ``shape * scale``."""
        return self._draw("gamma", size, dtype, shape, scale)

    def beta(self, a: Any, b: Any, size: Any = None, dtype: Any = float) -> ndarray:
        """Beta distribution over ``[0, 1]`` with mean ``a / (a + b)``."""
        return self._draw("beta", size, dtype, a, b)

    def geometric(self, p: Any, size: Any = None, dtype: Any = np.int64) -> ndarray:
        """Trials up to and including the first success, of probability `p` each."""
        return self._draw("geometric", size, dtype, p)

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
        name = "curand_shuffle"
        moved = 2 * a.nbytes
        device = _machine.current().current_device
        run_kernel(device, name, moved, lambda: self._host.shuffle(a._host), 0.0, (a,), (a,))

    def choice(self, a: Any, size: Any = None, replace: bool = True, p: Any = None) -> ndarray:
        """A random sample of ``arange(a)`` or of a one-dimensional array."""
        host = np.asarray(self._host.choice(_parameter(a), _size(size), replace, _parameter(p)))
        return _output(host, host.dtype, "choice")

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


def default_rng(seed: Any = None) -> Generator:
    """A generator, of XORWOW's bits unless another one is given; the same seed gives the same arrays."""
    if isinstance(seed, Generator):
        return seed
    return Generator(seed if isinstance(seed, BitGenerator) else XORWOW(seed))


def get_random_state() -> RandomState:
    """The current device's state behind the functions of this module."""
    machine = _machine.current()
    states = machine.random_states
    device_id = machine.current_device_id
    if device_id not in states:
        states[device_id] = RandomState()
    state: RandomState = states[device_id]
    return state


def set_random_state(rs: RandomState) -> None:
    """Let the functions of this module draw from `rs` on the current device."""
    if not isinstance(rs, RandomState):
        raise TypeError(f"Random state must be an instance of RandomState. Actual: {type(rs)}")
    machine = _machine.current()
    machine.random_states[machine.current_device_id] = rs


def reset_states() -> None:
    """Forget the states of all devices: each begins anew, from a seed that nobody chose."""
    _machine.current().random_states.clear()


def _of_current_state(name: str) -> Callable[..., Any]:
    """A method of `RandomState` as a function that draws from the current device's state."""
    method = getattr(RandomState, name)

    def draw(*args: Any, **kwargs: Any) -> Any:
        return getattr(get_random_state(), name)(*args, **kwargs)

    draw.__name__ = name
    draw.__qualname__ = name
    draw.__doc__ = method.__doc__
    told = signature(method)
    draw.__signature__ = told.replace(parameters=[*told.parameters.values()][1:])  # type: ignore[attr-defined]
    return draw


seed, rand, randn, randint = map(_of_current_state, ("seed", "rand", "randn", "randint"))
random = random_sample = ranf = sample = _of_current_state("random")
uniform, normal, standard_normal = map(_of_current_state, ("uniform", "normal", "standard_normal"))
exponential, poisson, binomial = map(_of_current_state, ("exponential", "poisson", "binomial"))
lognormal, laplace, gamma = map(_of_current_state, ("lognormal", "laplace", "gamma"))
beta, geometric = map(_of_current_state, ("beta", "geometric"))
permutation, shuffle, choice = map(_of_current_state, ("permutation", "shuffle", "choice"))

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
__getattr__ = module_getattr("cp.random", globals())
