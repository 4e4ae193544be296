"""Decorators that skip tests without packages or devices, or fix their random numbers."""

from __future__ import annotations

import functools
import importlib.metadata
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from virtualgpu.cp import random as device_random
from virtualgpu.cp._core.array import ndarray
from virtualgpu.model import machine as _machine


def installed(*specifiers: str) -> bool:
    """Return whether packages are installed in the required versions, such as ``"numpy>=1.20"``."""
    from packaging.requirements import Requirement

    for specifier in specifiers:
        requirement = Requirement(specifier)
        if requirement.name == "cupy":
            version = ndarray._module.__version__.partition("+")[0]
        else:
            try:
                version = importlib.metadata.version(requirement.name)
            except importlib.metadata.PackageNotFoundError:
                return False
        if not requirement.specifier.contains(version, prereleases=True):
            return False
    return True


def numpy_satisfies(version_range: str) -> bool:
    """Return whether the version of NumPy is in a range such as ``">=2.0"``."""
    return installed(f"numpy{version_range}")


def with_requires(*requirements: str) -> Callable[[Any], Any]:
    """Skip a test unless packages are installed in the required versions, such as ``"numpy>=1.20"``."""
    import pytest

    return pytest.mark.skipif(not installed(*requirements), reason=f"requires {', '.join(requirements)}")


def multi_gpu(gpu_num: int) -> Callable[[Any], Any]:
    """Skip a test unless there are at least `gpu_num` devices."""
    import pytest

    device_count = len(_machine.current().devices)
    skip_mark = pytest.mark.skipif(
        device_count < gpu_num, reason=f"{gpu_num} GPUs are needed, but this machine has {device_count}"
    )
    return lambda test: skip_mark(pytest.mark.multi_gpu(test))


def slow(*args: Any, **kwargs: Any) -> Any:
    """Mark a test as slow, so that ``pytest -m "not slow"`` does not run it."""
    import pytest

    return pytest.mark.slow(*args, **kwargs)


@contextmanager
def _use_fixed_random() -> Iterator[None]:
    """Fix the random numbers on host and device, and restore the states of the generators afterwards."""
    states = _machine.current().random_states
    saved_states = random.getstate(), np.random.get_state(), dict(states)
    random.seed(99)
    np.random.seed(100)
    device_random.seed(101)
    try:
        yield
    finally:
        random.setstate(saved_states[0])
        np.random.set_state(saved_states[1])
        states.clear()
        states.update(saved_states[2])


def generate_seed() -> int:
    """Return a seed for random numbers. The decorator `fix_random` makes the seed reproducible."""
    return int(np.random.randint(0x7FFFFFFF))


def fix_random() -> Callable[[Any], Any]:
    """Make the random numbers of a test, or of each test of a class, reproducible."""

    def decorate(test: Any) -> Any:
        if isinstance(test, type):
            import pytest

            def fix_random_numbers(self: Any) -> Iterator[None]:
                with _use_fixed_random():
                    yield

            test._virtualgpu_fixed_random = pytest.fixture(autouse=True)(fix_random_numbers)  # type: ignore[attr-defined]
            return test

        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> Any:
            with _use_fixed_random():
                return test(*args, **kwargs)

        return run

    return decorate
