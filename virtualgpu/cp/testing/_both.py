"""Tests that run with ``cp`` and with NumPy in turn, and compare what comes out."""

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

Test = Callable[..., Any]
Check = Callable[[Any, Any], None]

# Errors that a program may tell apart: both sides belong to the same of them.
_KINDS = (
    AttributeError,
    IndexError,
    TypeError,
    ValueError,
    NotImplementedError,
    DeprecationWarning,
    AxisError,
    np.linalg.LinAlgError,
)


def hiding(impl: Test, names: Sequence[str], call: Test) -> Test:
    """`call` in the place of a test, without the arguments that it supplies (pytest: fixtures)."""
    replaced = functools.wraps(impl)(call)
    signature = inspect.signature(impl)
    kept = [one for name, one in signature.parameters.items() if name not in names]
    replaced.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    return replaced


def _attempt(impl: Test, args: Any, kwargs: Any) -> tuple[Any, Exception | None]:
    try:
        return impl(*args, **kwargs), None
    except Exception as error:
        return None, error


def _modules(name: str, sp_name: str | None, scipy_name: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a test is given: modules of the device, modules of the host."""
    if sp_name or scipy_name:
        raise NotSupportedError("The virtual GPU has no cupyx.scipy: a test of it needs CuPy on a GPU.")
    return {name: ndarray._module}, {name: np}


def _check_errors(ours: Exception | None, theirs: Exception | None, accepted: Any) -> None:
    """Make sure that both sides failed, in ways that a program cannot tell apart, and as expected."""
    classes = Exception if accepted is True else accepted or ()
    if ours is None or theirs is None:
        which, error = ("NumPy", theirs) if ours is None else ("cp", ours)
        if error is None:
            raise AssertionError("Neither cp nor NumPy raised an error.")
        raise AssertionError(f"Only {which} raised an error: {type(error).__name__}: {error}") from error
    alike = all(isinstance(ours, kind) == isinstance(theirs, kind) for kind in _KINDS)
    if not alike or not (isinstance(ours, classes) and isinstance(theirs, classes)):
        raise AssertionError(
            f"cp raised {type(ours).__name__}: {ours}; NumPy raised {type(theirs).__name__}: {theirs}"
        ) from ours


def _listed(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def _comparing(
    check: Check,
    name: str,
    sp_name: str | None,
    scipy_name: str | None,
    accept_error: Any,
    type_check: bool,
    contiguous_check: bool = False,
) -> Callable[[Test], Test]:
    """A decorator of tests that return arrays, or sequences of them."""

    def decorate(impl: Test) -> Test:
        def test(*args: Any, **kwargs: Any) -> None:
            ours_given, theirs_given = _modules(name, sp_name, scipy_name)
            ours, ours_error = _attempt(impl, args, kwargs | ours_given)
            theirs, theirs_error = _attempt(impl, args, kwargs | theirs_given)
            if ours_error is not None or theirs_error is not None:
                _check_errors(ours_error, theirs_error, accept_error)
                return
            assert ours is not None, "The test returns what is to be compared."
            pairs = list(zip(_listed(ours), _listed(theirs), strict=True))
            for one, other in pairs:
                if contiguous_check and isinstance(other, np.ndarray):
                    for order in ("c_contiguous", "f_contiguous"):
                        if getattr(other.flags, order) and not getattr(one.flags, order):
                            raise AssertionError(f"NumPy's result is {order}, that of cp is not.")
                one = asnumpy(one)
                other = asnumpy(other)
                if type_check and one.dtype != other.dtype:
                    raise AssertionError(f"The dtypes differ. cp: {one.dtype}, NumPy: {other.dtype}")
                if one.shape != other.shape:
                    raise AssertionError(f"The shapes differ. cp: {one.shape}, NumPy: {other.shape}")
            for one, other in pairs:
                check(one, other)

        return hiding(impl, [given for given in (name, sp_name, scipy_name) if given], test)

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
) -> Callable[[Test], Test]:
    """Decorate a test that returns arrays: those of ``cp`` and of NumPy are close.

    Parameters
    ----------
    rtol, atol : float or dict
        A dict has a tolerance for each dtype of results, and that of others under ``"default"``.
    name, sp_name, scipy_name : str
        The argument that takes the module; those for SciPy's modules.
    type_check, contiguous_check : bool
        Whether dtypes, and layouts where NumPy's is contiguous, agree.
    accept_error : bool or class
        Errors that both sides may raise.
    """

    def check(one: Any, other: Any) -> None:
        kind = asnumpy(one).dtype.type
        relative, absolute = (
            tolerance.get(kind, tolerance.get("default", otherwise))
            if isinstance(tolerance, dict)
            else tolerance
            for tolerance, otherwise in ((rtol, 1e-7), (atol, 0))
        )
        _assertions.assert_allclose(one, other, relative, absolute, err_msg=err_msg, verbose=verbose)

    return _comparing(check, name, sp_name, scipy_name, accept_error, type_check, contiguous_check)


def numpy_cupy_array_almost_equal(
    decimal: int = 6,
    err_msg: str = "",
    verbose: bool = True,
    name: str = "xp",
    type_check: bool = True,
    accept_error: Any = False,
    sp_name: str | None = None,
    scipy_name: str | None = None,
) -> Callable[[Test], Test]:
    """Like `numpy_cupy_allclose`, to so many decimal places."""

    def check(one: Any, other: Any) -> None:
        _assertions.assert_array_almost_equal(one, other, decimal, err_msg=err_msg, verbose=verbose)

    return _comparing(check, name, sp_name, scipy_name, accept_error, type_check)


def numpy_cupy_array_almost_equal_nulp(
    nulp: int = 1,
    name: str = "xp",
    type_check: bool = True,
    accept_error: Any = False,
    sp_name: str | None = None,
    scipy_name: str | None = None,
) -> Callable[[Test], Test]:
    """Like `numpy_cupy_allclose`, to so many units in the last place of the larger."""

    def check(one: Any, other: Any) -> None:
        _assertions.assert_array_almost_equal_nulp(one, other, nulp)

    return _comparing(check, name, sp_name, scipy_name, accept_error, type_check)


def numpy_cupy_array_max_ulp(
    maxulp: int = 1,
    dtype: Any = None,
    name: str = "xp",
    type_check: bool = True,
    accept_error: Any = False,
    sp_name: str | None = None,
    scipy_name: str | None = None,
) -> Callable[[Test], Test]:
    """Like `numpy_cupy_allclose`, to so many numbers that the dtype has between them."""

    def check(one: Any, other: Any) -> None:
        _assertions.assert_array_max_ulp(one, other, maxulp, dtype)

    return _comparing(check, name, sp_name, scipy_name, accept_error, type_check)


def numpy_cupy_array_equal(
    err_msg: str = "",
    verbose: bool = True,
    name: str = "xp",
    type_check: bool = True,
    accept_error: Any = False,
    sp_name: str | None = None,
    scipy_name: str | None = None,
    strides_check: bool = False,
) -> Callable[[Test], Test]:
    """Like `numpy_cupy_allclose`, for equal results."""

    def check(one: Any, other: Any) -> None:
        _assertions.assert_array_equal(one, other, err_msg, verbose, strides_check=strides_check)

    return _comparing(check, name, sp_name, scipy_name, accept_error, type_check)


def numpy_cupy_array_list_equal(
    err_msg: str = "",
    verbose: bool = True,
    name: str = "xp",
    sp_name: str | None = None,
    scipy_name: str | None = None,
) -> Callable[[Test], Test]:
    """Decorate a test that returns a list of arrays: they are equal one by one."""

    def check(one: Any, other: Any) -> None:
        _assertions.assert_array_equal(one, other, err_msg, verbose)

    return _comparing(check, name, sp_name, scipy_name, False, False)


def numpy_cupy_array_less(
    err_msg: str = "",
    verbose: bool = True,
    name: str = "xp",
    type_check: bool = True,
    accept_error: Any = False,
    sp_name: str | None = None,
    scipy_name: str | None = None,
) -> Callable[[Test], Test]:
    """Like `numpy_cupy_allclose`: ``cp``'s results are less than NumPy's."""

    def check(one: Any, other: Any) -> None:
        _assertions.assert_array_less(one, other, err_msg=err_msg, verbose=verbose)

    return _comparing(check, name, sp_name, scipy_name, accept_error, type_check)


def numpy_cupy_equal(
    name: str = "xp", sp_name: str | None = None, scipy_name: str | None = None
) -> Callable[[Test], Test]:
    """Decorate a test that returns something that ``==`` compares, such as a number."""

    def decorate(impl: Test) -> Test:
        def test(*args: Any, **kwargs: Any) -> None:
            ours_given, theirs_given = _modules(name, sp_name, scipy_name)
            ours = impl(*args, **kwargs, **ours_given)
            theirs = impl(*args, **kwargs, **theirs_given)
            if ours != theirs:
                raise AssertionError(f"The results differ. cp: {ours!r}, NumPy: {theirs!r}")

        return hiding(impl, [given for given in (name, sp_name, scipy_name) if given], test)

    return decorate


def numpy_cupy_raises(
    name: str = "xp", sp_name: str | None = None, scipy_name: str | None = None, accept_error: Any = Exception
) -> Callable[[Test], Test]:
    """Decorate a test that fails: with ``cp`` and NumPy in ways that a program cannot tell apart."""

    def decorate(impl: Test) -> Test:
        def test(*args: Any, **kwargs: Any) -> None:
            ours_given, theirs_given = _modules(name, sp_name, scipy_name)
            ours = _attempt(impl, args, kwargs | ours_given)[1]
            theirs = _attempt(impl, args, kwargs | theirs_given)[1]
            _check_errors(ours, theirs, accept_error)

        return hiding(impl, [given for given in (name, sp_name, scipy_name) if given], test)

    return decorate
