"""Work for notebook 07: a kernel, a simulation on the host, and a policy, with their results in NumPy."""

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
DECISION_ROUNDS = 32_768


@lru_cache(8)
def _compile_kernel(name: str, cp: Any) -> Any:
    kernel_code = (Path(__file__).parent / "kernels" / "streams.cu").read_text(encoding="utf-8")
    return cp.RawKernel(kernel_code, name)


def simmer(a: Any, rounds: int = ROUNDS, blocks: int = BLOCKS, stream: Any = None) -> None:
    """Launch a kernel that iterates ``v = 3.9 v (1 - v)`` for each element of `a` (float32) in place.

    The launch has `blocks` blocks of 256 threads and runs in `stream`, or in the current stream.
    """
    if a.size:
        args = (a, np.int32(a.size), np.int32(rounds))
        _compile_kernel("simmer", session.cp())((blocks,), (THREADS,), args, stream=stream)


def simmer_by_numpy(a: Floats, rounds: int = ROUNDS) -> Floats:
    """Compute the result of the kernel `simmer` for the array `a` with NumPy."""
    a = a.copy()
    for _ in range(rounds):
        a = np.float32(3.9) * a * (np.float32(1) - a)
    return a


def decide(observation: Any, rounds: int = DECISION_ROUNDS) -> Any:
    """Launch the policy kernel in the current stream, and return an action in [0, 1) for each observation."""
    cp = session.cp()
    action = cp.empty_like(observation)
    grid = (-(-observation.size // THREADS),)
    args = (observation, action, np.int32(observation.size), np.int32(rounds))
    _compile_kernel("decide", cp)(grid, (THREADS,), args)
    return action


def decide_by_numpy(observation: Floats, rounds: int = DECISION_ROUNDS) -> Floats:
    """Compute the result of the policy kernel `decide` with NumPy.

    The iterations of ``v = a v + c`` are combined into one iteration with other values of a and c.
    """
    total_multiplier = 1
    total_increment = 0
    a = 1664525
    c = 1013904223
    while rounds:
        if rounds & 1:
            total_multiplier = total_multiplier * a % 2**32
            total_increment = (total_increment * a + c) % 2**32
        c = (a * c + c) % 2**32
        a = a * a % 2**32
        rounds >>= 1
    result_bits = np.ascontiguousarray(observation, np.float32).view(np.uint32) * np.uint32(
        total_multiplier
    ) + np.uint32(total_increment)
    return (result_bits >> np.uint32(8)).astype(np.float32) / np.float32(2**24)


def _ignore_use(action: str, array_name: str, reads: Sequence[Any] = (), writes: Sequence[Any] = ()) -> None:
    """Do nothing; the default for `Environment.report_use`."""


class Environment:
    """A simulation that runs on the host and provides observations for a policy. Its method `step` reads the
    array ``action`` and writes the array ``observation``.

    Parameters
    ----------
    initial_observation
        The first observation, float32.
    copy_to_pinned
        Function that copies an array to pinned memory; both arrays of the environment are pinned.
    keep_busy
        Function that keeps the host busy for a number of µs.
    report_use
        Function that is called before the host reads or writes one of the arrays.
    """

    STEP_US = 120.0

    def __init__(
        self,
        initial_observation: Floats,
        copy_to_pinned: Callable[[Floats], Floats],
        keep_busy: Callable[[float], None],
        report_use: Callable[..., None] = _ignore_use,
    ) -> None:
        self.observation = copy_to_pinned(initial_observation)
        self.action = copy_to_pinned(np.zeros_like(initial_observation))
        self.steps = 0
        self._keep_busy = keep_busy
        self._report_use = report_use

    def step(self) -> None:
        """Compute the environment's next observation from the action."""
        self._report_use("reads in env.step()", "env.action", reads=(self.action,))
        self._report_use("writes in env.step()", "env.observation", writes=(self.observation,))
        self._keep_busy(self.STEP_US)
        self.observation[...] = self.compute_next_observation(self.observation, self.action)
        self.steps += 1

    @staticmethod
    def compute_next_observation(observation: Floats, action: Floats) -> Floats:
        """Compute the observation that follows an observation and an action."""
        return np.float32(0.5) * observation + action
