"""Decorators for tests that run with ``cp`` and with NumPy and compare the results."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._routines.creation import asnumpy
from virtualgpu.cp.exceptions import AxisError
from virtualgpu.cp.testing import _assertions
from virtualgpu.errors import NotSupportedError

DecoratedTest = Callable[..., Any]
CheckFunction = Callable[[Any, Any], None]

# Errors that a program can distinguish: both sides must raise the same of them.
_ERROR_CLASSES = (
    AttributeError,
    IndexError,
    TypeError,
    ValueError,
    NotImplementedError,
    DeprecationWarning,
    AxisError,
    np.linalg.LinAlgError,
)


def hide_arguments(impl: DecoratedTest, names: Sequence[str], call: DecoratedTest) -> DecoratedTest:
    """Hide test arguments that `call` supplies, so that pytest does not treat them as fixtures."""
    wrapper = functools.wraps(impl)(call)
    signature = inspect.signature(impl)
    parameters = [parameter for name, parameter in signature.parameters.items() if name not in names]
    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return wrapper


def _try_test(impl: DecoratedTest, args: Any, kwargs: Any) -> tuple[Any, Exception | None]:
    try:
        return impl(*args, **kwargs), None
    except Exception as error:
        return None, error


def _make_module_arguments(
    name: str, sp_name: str | None, scipy_name: str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return two dicts of keyword arguments for a test: one with ``cp``, one with NumPy."""
    if sp_name or scipy_name:
        raise NotSupportedError(
            "The virtual GPU's cp.testing does not support tests of SciPy. Run them with CuPy on a GPU."
        )
    return {name: ndarray._module}, {name: np}


def _check_errors(device_error: Exception | None, host_error: Exception | None, accepted_errors: Any) -> None:
    """Check that the runs with ``cp`` and with NumPy raised errors that a program cannot distinguish."""
    accepted_classes = Exception if accepted_errors is True else accepted_errors or ()
    if device_error is None or host_error is None:
        module_name, error = ("NumPy", host_error) if device_error is None else ("cp", device_error)
        if error is None:
            raise AssertionError("Neither cp nor NumPy raised an error.")
        raise AssertionError(
            f"Only {module_name} raised an error: {type(error).__name__}: {error}"
        ) from error
    have_same_classes = all(
        isinstance(device_error, error_class) == isinstance(host_error, error_class)
        for error_class in _ERROR_CLASSES
    )
    if not have_same_classes or not (
        isinstance(device_error, accepted_classes) and isinstance(host_error, accepted_classes)
    ):
        raise AssertionError(
            f"cp raised {type(device_error).__name__}: {device_error}; NumPy raised "
            f"{type(host_error).__name__}: {host_error}"
        ) from device_error


def _convert_to_tuple(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def _make_comparison_decorator(
    check: CheckFunction,
    name: str,
    sp_name: str | None,
    scipy_name: str | None,
    accept_error: Any,
    type_check: bool,
    contiguous_check: bool = False,
) -> Callable[[DecoratedTest], DecoratedTest]:
    """Return a decorator that runs a test with ``cp`` and with NumPy, and compares the returned arrays."""

    def decorate(impl: DecoratedTest) -> DecoratedTest:
        def test(*args: Any, **kwargs: Any) -> None:
            device_modules, host_modules = _make_module_arguments(name, sp_name, scipy_name)
            device_result, device_error = _try_test(impl, args, kwargs | device_modules)
            host_result, host_error = _try_test(impl, args, kwargs | host_modules)
            if device_error is not None or host_error is not None:
                _check_errors(device_error, host_error, accept_error)
                return
            assert device_result is not None, "The test must return the values to compare."
            result_pairs = list(
                zip(_convert_to_tuple(device_result), _convert_to_tuple(host_result), strict=True)
            )
            for device_item, host_item in result_pairs:
                if contiguous_check and isinstance(host_item, np.ndarray):
                    for contiguity_flag in ("c_contiguous", "f_contiguous"):
                        if getattr(host_item.flags, contiguity_flag) and not getattr(
                            device_item.flags, contiguity_flag
                        ):
                            raise AssertionError(
                                f"NumPy's result is {contiguity_flag}, but the result of cp is not."
                            )
                device_item = asnumpy(device_item)
                host_item = asnumpy(host_item)
                if type_check and device_item.dtype != host_item.dtype:
                    raise AssertionError(
                        f"The dtypes differ. cp: {device_item.dtype}, NumPy: {host_item.dtype}"
                    )
                if device_item.shape != host_item.shape:
                    raise AssertionError(
                        f"The shapes differ. cp: {device_item.shape}, NumPy: {host_item.shape}"
                    )
            for device_item, host_item in result_pairs:
                check(device_item, host_item)

        return hide_arguments(impl, [argument for argument in (name, sp_name, scipy_name) if argument], test)

    return decorate


def numpy_cupy_allclose(
    rtol: Any = 1e-7,
    atol: Any = 0,
    err_msg: str = "",
    verbose: bool = True,
    name: str = "xp",
    type_check: bool = True,
    accept_error: Any = False,
    sp_name: str | None = None,
    scipy_name: str | None = None,
    contiguous_check: bool = True,
) -> Callable[[DecoratedTest], DecoratedTest]:
    """Decorate a test that returns arrays. The results with ``cp`` and with NumPy must agree within
    tolerances.

    Parameters
    ----------
    rtol, atol : float or dict
        Tolerances; a dict maps dtypes of results to tolerances, and ``"default"`` to that of other dtypes.
    name, sp_name, scipy_name : str
        Names of the arguments for the module, and for SciPy's modules.
    type_check, contiguous_check : bool
        Whether dtypes must be equal, and whether results must be contiguous where NumPy's are.
    accept_error : bool or class
        Errors that both sides are allowed to raise.
    """

    def check(device_item: Any, host_item: Any) -> None:
        dtype_class = asnumpy(device_item).dtype.type
        relative_tolerance, absolute_tolerance = (
            tolerance.get(dtype_class, tolerance.get("default", default))
            if isinstance(tolerance, dict)
            else tolerance
            for tolerance, default in ((rtol, 1e-7), (atol, 0))
        )
        _assertions.assert_allclose(
            device_item, host_item, relative_tolerance, absolute_tolerance, err_msg=err_msg, verbose=verbose
        )

    return _make_comparison_decorator(
        check, name, sp_name, scipy_name, accept_error, type_check, contiguous_check
    )


def numpy_cupy_array_almost_equal(
    decimal: int = 6,
    err_msg: str = "",
    verbose: bool = True,
    name: str = "xp",
    type_check: bool = True,
    accept_error: Any = False,
    sp_name: str | None = None,
    scipy_name: str | None = None,
) -> Callable[[DecoratedTest], DecoratedTest]:
    """Decorate a test like `numpy_cupy_allclose`. The results must agree to a given number of decimal
    places.
    """

    def check(device_item: Any, host_item: Any) -> None:
        _assertions.assert_array_almost_equal(
            device_item, host_item, decimal, err_msg=err_msg, verbose=verbose
        )

    return _make_comparison_decorator(check, name, sp_name, scipy_name, accept_error, type_check)


def numpy_cupy_array_almost_equal_nulp(
    nulp: int = 1,
    name: str = "xp",
    type_check: bool = True,
    accept_error: Any = False,
    sp_name: str | None = None,
    scipy_name: str | None = None,
) -> Callable[[DecoratedTest], DecoratedTest]:
    """Decorate a test like `numpy_cupy_allclose`. The results may differ by `nulp` units in the last place of
    the larger value.
    """

    def check(device_item: Any, host_item: Any) -> None:
        _assertions.assert_array_almost_equal_nulp(device_item, host_item, nulp)

    return _make_comparison_decorator(check, name, sp_name, scipy_name, accept_error, type_check)


def numpy_cupy_array_max_ulp(
    maxulp: int = 1,
    dtype: Any = None,
    name: str = "xp",
    type_check: bool = True,
    accept_error: Any = False,
    sp_name: str | None = None,
    scipy_name: str | None = None,
) -> Callable[[DecoratedTest], DecoratedTest]:
    """Decorate a test like `numpy_cupy_allclose`. The results may be at most `maxulp` representable values
    apart.
    """

    def check(device_item: Any, host_item: Any) -> None:
        _assertions.assert_array_max_ulp(device_item, host_item, maxulp, dtype)

    return _make_comparison_decorator(check, name, sp_name, scipy_name, accept_error, type_check)


def numpy_cupy_array_equal(
    err_msg: str = "",
    verbose: bool = True,
    name: str = "xp",
    type_check: bool = True,
    accept_error: Any = False,
    sp_name: str | None = None,
    scipy_name: str | None = None,
    strides_check: bool = False,
) -> Callable[[DecoratedTest], DecoratedTest]:
    """Decorate a test like `numpy_cupy_allclose`. The results must be equal."""

    def check(device_item: Any, host_item: Any) -> None:
        _assertions.assert_array_equal(device_item, host_item, err_msg, verbose, strides_check=strides_check)

    return _make_comparison_decorator(check, name, sp_name, scipy_name, accept_error, type_check)


def numpy_cupy_array_list_equal(
    err_msg: str = "",
    verbose: bool = True,
    name: str = "xp",
    sp_name: str | None = None,
    scipy_name: str | None = None,
) -> Callable[[DecoratedTest], DecoratedTest]:
    """Decorate a test that returns a list of arrays. The arrays from ``cp`` and NumPy must be equal."""

    def check(device_item: Any, host_item: Any) -> None:
        _assertions.assert_array_equal(device_item, host_item, err_msg, verbose)

    return _make_comparison_decorator(check, name, sp_name, scipy_name, False, False)


def numpy_cupy_array_less(
    err_msg: str = "",
    verbose: bool = True,
    name: str = "xp",
    type_check: bool = True,
    accept_error: Any = False,
    sp_name: str | None = None,
    scipy_name: str | None = None,
) -> Callable[[DecoratedTest], DecoratedTest]:
    """Decorate a test like `numpy_cupy_allclose`. The results of ``cp`` must be less than the results of
    NumPy.
    """

    def check(device_item: Any, host_item: Any) -> None:
        _assertions.assert_array_less(device_item, host_item, err_msg=err_msg, verbose=verbose)

    return _make_comparison_decorator(check, name, sp_name, scipy_name, accept_error, type_check)


def numpy_cupy_equal(
    name: str = "xp", sp_name: str | None = None, scipy_name: str | None = None
) -> Callable[[DecoratedTest], DecoratedTest]:
    """Decorate a test that returns a value such as a number. The value from ``cp`` must be equal to the value
    from NumPy.
    """

    def decorate(impl: DecoratedTest) -> DecoratedTest:
        def test(*args: Any, **kwargs: Any) -> None:
            device_modules, host_modules = _make_module_arguments(name, sp_name, scipy_name)
            device_result = impl(*args, **kwargs, **device_modules)
            host_result = impl(*args, **kwargs, **host_modules)
            if device_result != host_result:
                raise AssertionError(f"The results differ. cp: {device_result!r}, NumPy: {host_result!r}")

        return hide_arguments(impl, [argument for argument in (name, sp_name, scipy_name) if argument], test)

    return decorate


def numpy_cupy_raises(
    name: str = "xp", sp_name: str | None = None, scipy_name: str | None = None, accept_error: Any = Exception
) -> Callable[[DecoratedTest], DecoratedTest]:
    """Decorate a test that must raise errors with ``cp`` and NumPy. Programs must not be able to distinguish
    the two errors by their classes.
    """

    def decorate(impl: DecoratedTest) -> DecoratedTest:
        def test(*args: Any, **kwargs: Any) -> None:
            device_modules, host_modules = _make_module_arguments(name, sp_name, scipy_name)
            device_error = _try_test(impl, args, kwargs | device_modules)[1]
            host_error = _try_test(impl, args, kwargs | host_modules)[1]
            _check_errors(device_error, host_error, accept_error)

        return hide_arguments(impl, [argument for argument in (name, sp_name, scipy_name) if argument], test)

    return decorate
