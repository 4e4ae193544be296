"""Pieces of work for notebook 07: simulations on the device and on the host, a policy, NumPy's answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab import session

Floats = npt.NDArray[np.float32]
BLOCKS = 8
THREADS = 256
ROUNDS = 128
PONDERED = 32_768


@lru_cache(8)
def _kernel(name: str, cp: Any) -> Any:
    code = (Path(__file__).parent / "kernels" / "streams.cu").read_text(encoding="utf-8")
    return cp.RawKernel(code, name)


def simmer(a: Any, rounds: int = ROUNDS, blocks: int = BLOCKS, stream: Any = None) -> None:
    """Iterate ``v = 3.9 v (1 - v)`` for each element of `a` (float32), in place.

    `blocks` of 256 threads share the elements; in `stream`, or the current one.
    """
    if a.size:
        args = (a, np.int32(a.size), np.int32(rounds))
        _kernel("simmer", session.cp())((blocks,), (THREADS,), args, stream=stream)


def simmered(a: Floats, rounds: int = ROUNDS) -> Floats:
    """Compute the result of `simmer` for `a` with NumPy."""
    a = a.copy()
    for _ in range(rounds):
        a = np.float32(3.9) * a * (np.float32(1) - a)
    return a


def decide(observation: Any, rounds: int = PONDERED) -> Any:
    """An action from 0 to 1 for each observation (float32), as a device array, in the current stream."""
    cp = session.cp()
    action = cp.empty_like(observation)
    grid = (-(-observation.size // THREADS),)
    args = (observation, action, np.int32(observation.size), np.int32(rounds))
    _kernel("decide", cp)(grid, (THREADS,), args)
    return action


def decided(observation: Floats, rounds: int = PONDERED) -> Floats:
    """Compute the result of `decide` with NumPy.

    So many iterations of ``v = a v + c`` are one iteration with another a and c.
    """
    factor = 1
    offset = 0
    a = 1664525
    c = 1013904223
    while rounds:
        if rounds & 1:
            factor = factor * a % 2**32
            offset = (offset * a + c) % 2**32
        a, c, rounds = a * a % 2**32, (a * c + c) % 2**32, rounds >> 1
    bits = np.ascontiguousarray(observation, np.float32).view(np.uint32) * np.uint32(factor) + np.uint32(
        offset
    )
    return (bits >> np.uint32(8)).astype(np.float32) / np.float32(2**24)


def _nobody(does: str, what: str, reads: Sequence[Any] = (), writes: Sequence[Any] = ()) -> None:
    """Ignore a use of memory by the host."""


class Environment:
    """A simulation on the host: `step` reads ``action``, writes ``observation``, and takes a while.

    Parameters
    ----------
    start
        The first observation, float32.
    pinned
        Copies an array to page-locked memory: both arrays lie there.
    busy
        Lets the host be busy for so many µs.
    uses
        Is told when the host uses one of the arrays.
    """

    STEP_US = 120.0

    def __init__(
        self,
        start: Floats,
        pinned: Callable[[Floats], Floats],
        busy: Callable[[float], None],
        uses: Callable[..., None] = _nobody,
    ) -> None:
        self.observation = pinned(start)
        self.action = pinned(np.zeros_like(start))
        self.steps = 0
        self._busy = busy
        self._uses = uses

    def step(self) -> None:
        """Update the observation from the action."""
        self._uses("reads in env.step()", "env.action", reads=(self.action,))
        self._uses("writes in env.step()", "env.observation", writes=(self.observation,))
        self._busy(self.STEP_US)
        self.observation[...] = self.answer(self.observation, self.action)
        self.steps += 1

    @staticmethod
    def answer(observation: Floats, action: Floats) -> Floats:
        """Return the observation that follows an action."""
        return np.float32(0.5) * observation + action
