"""What a test needs: packages, devices, and random numbers that are the same each time."""

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
    """Whether packages are there, in versions such as ``"numpy>=1.20"`` allows."""
    from packaging.requirements import Requirement

    for specifier in specifiers:
        wanted = Requirement(specifier)
        if wanted.name == "cupy":
            found = ndarray._module.__version__.partition("+")[0]
        else:
            try:
                found = importlib.metadata.version(wanted.name)
            except importlib.metadata.PackageNotFoundError:
                return False
        if not wanted.specifier.contains(found, prereleases=True):
            return False
    return True


def numpy_satisfies(version_range: str) -> bool:
    """Whether NumPy's version is in a range such as ``">=2.0"``."""
    return installed(f"numpy{version_range}")


def with_requires(*requirements: str) -> Callable[[Any], Any]:
    """Skip a test unless packages are there; see `installed`."""
    import pytest

    return pytest.mark.skipif(not installed(*requirements), reason=f"requires {', '.join(requirements)}")


def multi_gpu(gpu_num: int) -> Callable[[Any], Any]:
    """Skip a test unless there are so many devices."""
    import pytest

    count = len(_machine.current().devices)
    needs = pytest.mark.skipif(count < gpu_num, reason=f"{gpu_num} GPUs are needed, and there is {count}")
    return lambda test: needs(pytest.mark.multi_gpu(test))


def slow(*args: Any, **kwargs: Any) -> Any:
    """Mark a test as slow: ``pytest -m "not slow"`` leaves it out."""
    import pytest

    return pytest.mark.slow(*args, **kwargs)


@contextmanager
def _fixed() -> Iterator[None]:
    """The same random numbers on host and device each time; the generators' own states come back after."""
    states = _machine.current().random_states
    kept = random.getstate(), np.random.get_state(), dict(states)
    random.seed(99)
    np.random.seed(100)
    device_random.seed(101)
    try:
        yield
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])
        states.clear()
        states.update(kept[2])


def generate_seed() -> int:
    """A seed of the numbers that `fix_random` fixes."""
    return int(np.random.randint(0x7FFFFFFF))


def fix_random() -> Callable[[Any], Any]:
    """Let a test, or each test of a class, have the same random numbers each time."""

    def decorate(test: Any) -> Any:
        if isinstance(test, type):
            import pytest

            def fixed(self: Any) -> Iterator[None]:
                with _fixed():
                    yield

            test._virtualgpu_fixed_random = pytest.fixture(autouse=True)(fixed)  # type: ignore[attr-defined]
            return test

        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> Any:
            with _fixed():
                return test(*args, **kwargs)

        return run

    return decorate
