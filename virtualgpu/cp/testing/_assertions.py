"""NumPy's assertions for device and host arrays."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from virtualgpu.cp._routines.creation import asnumpy


def _make_device_assertion(name: str, operand_count: int = 2) -> Callable[..., None]:
    def check(*args: Any, **kwargs: Any) -> None:
        import numpy.testing  # imported late, since its import takes as long as NumPy's

        host_arrays = [asnumpy(argument) for argument in args[:operand_count]]
        getattr(numpy.testing, name)(*host_arrays, *args[operand_count:], **kwargs)

    check.__name__ = check.__qualname__ = name
    check.__doc__ = f"Like ``numpy.testing.{name}``; device arrays are copied to the host."
    return check


assert_allclose = _make_device_assertion("assert_allclose")
assert_array_almost_equal = _make_device_assertion("assert_array_almost_equal")
assert_array_almost_equal_nulp = _make_device_assertion("assert_array_almost_equal_nulp")
assert_array_less = _make_device_assertion("assert_array_less")
assert_array_max_ulp = _make_device_assertion("assert_array_max_ulp")
_assert_equal = _make_device_assertion("assert_array_equal")


def assert_array_equal(
    actual: Any,
    desired: Any,
    err_msg: str = "",
    verbose: bool = True,
    *,
    strict: bool = False,
    strides_check: bool = False,
) -> None:
    """Check that two arrays are equal. With `strides_check`, the strides must also be equal."""
    _assert_equal(actual, desired, err_msg=err_msg, verbose=verbose, strict=strict)
    if strides_check and actual.strides != desired.strides:
        raise AssertionError(f"The strides {actual.strides} are not {desired.strides}. {err_msg}".rstrip())


def assert_array_list_equal(xlist: Any, ylist: Any, err_msg: str = "", verbose: bool = True) -> None:
    """Compare the arrays of two lists in pairs with `assert_array_equal`."""
    if type(xlist) is not type(ylist) or len(xlist) != len(ylist):
        descriptions = [f"a {type(arrays).__name__} of {len(arrays)}" for arrays in (xlist, ylist)]
        raise AssertionError(f"{descriptions[0]} is not {descriptions[1]}. {err_msg}".rstrip())
    for actual, desired in zip(xlist, ylist, strict=True):
        assert_array_equal(actual, desired, err_msg=err_msg, verbose=verbose)


@contextlib.contextmanager
def assert_warns(expected: type[Warning]) -> Iterator[None]:
    """Check that the code in a ``with`` block issues a warning of the class `expected`."""
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        yield
    if not any(issubclass(warning.category, expected) for warning in caught_warnings):
        raise AssertionError(f"The block did not issue a {expected.__name__}.")


@contextlib.contextmanager
def AssertFunctionIsCalled(*args: Any, times_called: int = 1, **kwargs: Any) -> Iterator[None]:  # noqa: N802
    """Check that code in a ``with`` block calls a mocked function the expected number of times."""
    with mock.patch(*args, **kwargs) as replacement:
        yield
    if replacement.call_count != times_called:
        raise AssertionError(
            f"The function was called {replacement.call_count} times, but {times_called} calls were expected."
        )
