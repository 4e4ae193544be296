"""Tests of many dtypes, orders and parameters."""

from __future__ import annotations

import itertools
import sys
import unittest
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from virtualgpu.cp.testing._both import Test, hiding

_SIGNED = tuple(np.dtype(code).type for code in "bhilq")
_UNSIGNED = tuple(np.dtype(code).type for code in "BHILQ")
_FLOATS = (np.float64, np.float32, np.float16)
_COMPLEX = (np.complex64, np.complex128)


def _each(names: Sequence[str], choices: Iterable[Sequence[Any]]) -> Callable[[Test], Test]:
    """A decorator that calls a test with each choice of some arguments in turn."""
    cases = [dict(zip(names, choice, strict=True)) for choice in choices]

    def decorate(impl: Test) -> Test:
        def test(*args: Any, **kwargs: Any) -> None:
            for case in cases:
                try:
                    impl(*args, **kwargs, **case)
                except BaseException as error:
                    error.add_note(", ".join(f"{name} is {_called(value)}" for name, value in case.items()))
                    raise

        return hiding(impl, names, test)

    return decorate


def _called(value: Any) -> str:
    name = getattr(value, "__name__", None)
    return name if isinstance(name, str) else repr(value)


def _all_dtypes(no_float16: bool, no_bool: bool, no_complex: bool) -> tuple[Any, ...]:
    floats = _FLOATS[: 2 if no_float16 else 3]
    return (
        *floats,
        *_SIGNED,
        *_UNSIGNED,
        *(() if no_bool else (np.bool_,)),
        *(() if no_complex else _COMPLEX),
    )


def for_dtypes(dtypes: Sequence[Any], name: str = "dtype") -> Callable[[Test], Test]:
    """Call a test with each of some dtypes, as a type."""
    return _each([name], [(np.dtype(dtype).type,) for dtype in dtypes])


def for_all_dtypes(
    name: str = "dtype", no_float16: bool = False, no_bool: bool = False, no_complex: bool = False
) -> Callable[[Test], Test]:
    """`for_dtypes` of all that device arrays have."""
    return for_dtypes(_all_dtypes(no_float16, no_bool, no_complex), name)


def for_float_dtypes(name: str = "dtype", no_float16: bool = False) -> Callable[[Test], Test]:
    """`for_dtypes` of the real floating-point types."""
    return for_dtypes(_FLOATS[: 2 if no_float16 else 3], name)


def for_signed_dtypes(name: str = "dtype") -> Callable[[Test], Test]:
    """`for_dtypes` of the signed integers."""
    return for_dtypes(_SIGNED, name)


def for_unsigned_dtypes(name: str = "dtype") -> Callable[[Test], Test]:
    """`for_dtypes` of the unsigned integers."""
    return for_dtypes(_UNSIGNED, name)


def for_int_dtypes(name: str = "dtype", no_bool: bool = False) -> Callable[[Test], Test]:
    """`for_dtypes` of all integers, and bool."""
    return for_dtypes((*_SIGNED, *_UNSIGNED, *(() if no_bool else (np.bool_,))), name)


def for_complex_dtypes(name: str = "dtype") -> Callable[[Test], Test]:
    """`for_dtypes` of the complex types."""
    return for_dtypes(_COMPLEX, name)


def for_dtypes_combination(
    types: Sequence[Any], names: Sequence[str] = ("dtype",), full: bool | None = None
) -> Callable[[Test], Test]:
    """Call a test with several dtypes at once: with `full` every combination, else each pair of neighbours.

    Without `full` each dtype still comes in each place, with itself and with others.
    """
    kinds = [np.dtype(kind).type for kind in types]
    if full:
        return _each(names, itertools.product(kinds, repeat=len(names)))
    count = len(kinds)
    shifts = {0, 1 % count, count // 2}
    rows = [
        tuple(kinds[(at + place * shift) % count] for place in range(len(names)))
        for shift in sorted(shifts)
        for at in range(count)
    ]
    return _each(names, dict.fromkeys(rows))


def for_all_dtypes_combination(
    names: Sequence[str] = ("dtype",),
    no_float16: bool = False,
    no_bool: bool = False,
    full: bool | None = None,
    no_complex: bool = False,
) -> Callable[[Test], Test]:
    """`for_dtypes_combination` of all dtypes."""
    return for_dtypes_combination(_all_dtypes(no_float16, no_bool, no_complex), names, full)


def for_signed_dtypes_combination(
    names: Sequence[str] = ("dtype",), full: bool | None = None
) -> Callable[[Test], Test]:
    """`for_dtypes_combination` of the signed integers."""
    return for_dtypes_combination(_SIGNED, names, full)


def for_unsigned_dtypes_combination(
    names: Sequence[str] = ("dtype",), full: bool | None = None
) -> Callable[[Test], Test]:
    """`for_dtypes_combination` of the unsigned integers."""
    return for_dtypes_combination(_UNSIGNED, names, full)


def for_int_dtypes_combination(
    names: Sequence[str] = ("dtype",), no_bool: bool = False, full: bool | None = None
) -> Callable[[Test], Test]:
    """`for_dtypes_combination` of all integers, and bool."""
    kinds = (*_SIGNED, *_UNSIGNED, *(() if no_bool else (np.bool_,)))
    return for_dtypes_combination(kinds, names, full)


def for_orders(orders: Iterable[Any], name: str = "order") -> Callable[[Test], Test]:
    """Call a test with each of some memory orders."""
    return _each([name], [(order,) for order in orders])


def for_CF_orders(name: str = "order") -> Callable[[Test], Test]:  # noqa: N802 - CuPy's name
    """`for_orders` of C and Fortran."""
    return for_orders([None, "C", "F", "c", "f"], name)


def for_contiguous_axes(name: str = "axis") -> Callable[[Test], Test]:
    """Call a method with each axis, or axes, that lie together in memory for its ``shape`` and ``order``."""

    def decorate(impl: Test) -> Test:
        def test(self: Any, *args: Any, **kwargs: Any) -> None:
            count = len(self.shape)
            first = self.order in ("f", "F")
            for number in range(count):
                axis = tuple(range(number + 1)) if first else tuple(range(count - 1, count - 2 - number, -1))
                impl(self, *args, **kwargs, **{name: axis})

        return hiding(impl, [name], test)

    return decorate


def product(parameters: Mapping[str, Sequence[Any]] | Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination, for `parameterize`: of a dict's lists, or of lists of dicts."""
    if isinstance(parameters, Mapping):
        names = sorted(parameters)
        rows = itertools.product(*(parameters[name] for name in names))
        return [dict(zip(names, row, strict=True)) for row in rows]
    return product_dict(*parameters)


def product_dict(*parameters: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every combination of one dict of each list, merged."""
    return [
        {name: value for one in row for name, value in one.items()} for row in itertools.product(*parameters)
    ]


def _cases(cls: type, sets: Sequence[Mapping[str, Any]]) -> type:
    """A class of `unittest` for each set of attributes, in the module of the class, itself no test."""
    module = sys.modules[cls.__module__]
    for number, one in enumerate(sets):

        def begin(self: Any, *args: Any, one: Mapping[str, Any] = one, **kwargs: Any) -> None:
            cls.__init__(self, *args, **kwargs)  # type: ignore[misc]
            self.__dict__.update(one)

        name = f"{cls.__name__}_{number}"
        setattr(
            module,
            name,
            type(name, (cls,), {"__init__": begin, "__test__": True, "__module__": cls.__module__}),
        )
    cls.__test__ = False  # type: ignore[attr-defined]
    return cls


def parameterize(*params: Mapping[str, Any], _ids: bool = True) -> Callable[[type], type]:
    """Run the tests of a class with each of some sets of attributes; needs pytest.

    `_ids` says whether the tests' names show them.
    """
    import pytest

    argument = "_virtualgpu_parameters"
    fixture = "_virtualgpu_parameterized"

    def decorate(cls: type) -> type:
        if hasattr(cls, fixture):
            raise RuntimeError(f"{cls.__name__} is parameterized twice; use product_dict().")

        def given(self: Any, _virtualgpu_parameters: Mapping[str, Any]) -> None:
            self.__dict__.update(_virtualgpu_parameters)

        sets = [dict(one) for one in params]
        if issubclass(cls, unittest.TestCase):
            return _cases(cls, sets)
        made = type(cls.__name__, (cls,), {fixture: pytest.fixture(autouse=True)(given)})
        made.__module__ = cls.__module__
        made.__qualname__ = cls.__qualname__
        made.__doc__ = cls.__doc__
        ids = [", ".join(f"{key}={_called(value)}"[:100] for key, value in one.items())[:500] for one in sets]
        return pytest.mark.parametrize(argument, sets, ids=ids if _ids else None)(made)

    return decorate
