"""``cp.testing``: NumPy's assertions on device or host arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from virtualgpu.cp._missing_names import module_getattr as _module_getattr
from virtualgpu.cp._routines.creation import asnumpy


def _assertion(name: str) -> Callable[..., None]:
    def check(actual: Any, desired: Any, *args: Any, **kwargs: Any) -> None:
        import numpy.testing  # takes as long to import as NumPy itself, so only when needed

        getattr(numpy.testing, name)(asnumpy(actual), asnumpy(desired), *args, **kwargs)

    check.__name__ = name
    check.__doc__ = f"Like ``numpy.testing.{name}``; device arrays are copied to the host."
    return check


assert_allclose = _assertion("assert_allclose")
assert_array_equal = _assertion("assert_array_equal")
assert_array_almost_equal = _assertion("assert_array_almost_equal")
assert_array_less = _assertion("assert_array_less")

__getattr__ = _module_getattr("cp.testing", globals())
