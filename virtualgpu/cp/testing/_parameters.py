"""Decorators that repeat a test with several dtypes, memory orders or parameters."""

from __future__ import annotations

import itertools
import sys
import unittest
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from virtualgpu.cp.testing._both import DecoratedTest, hide_arguments

_SIGNED_TYPES = tuple(np.dtype(type_code).type for type_code in "bhilq")
_UNSIGNED_TYPES = tuple(np.dtype(code).type for code in "BHILQ")
_FLOAT_TYPES = (np.float64, np.float32, np.float16)
_COMPLEX_TYPES = (np.complex64, np.complex128)


def _make_choice_decorator(
    names: Sequence[str], choices: Iterable[Sequence[Any]]
) -> Callable[[DecoratedTest], DecoratedTest]:
    """Return a decorator that calls a test once for each choice of values of some arguments."""
    argument_sets = [dict(zip(names, choice, strict=True)) for choice in choices]

    def decorate(impl: DecoratedTest) -> DecoratedTest:
        def test(*args: Any, **kwargs: Any) -> None:
            for argument_set in argument_sets:
                try:
                    impl(*args, **kwargs, **argument_set)
                except BaseException as error:
                    error.add_note(
                        ", ".join(f"{name} is {_format_value(value)}" for name, value in argument_set.items())
                    )
                    raise

        return hide_arguments(impl, names, test)

    return decorate


def _format_value(value: Any) -> str:
    name = getattr(value, "__name__", None)
    return name if isinstance(name, str) else repr(value)


def _list_all_dtypes(no_float16: bool, no_bool: bool, no_complex: bool) -> tuple[Any, ...]:
    float_types = _FLOAT_TYPES[: 2 if no_float16 else 3]
    return (
        *float_types,
        *_SIGNED_TYPES,
        *_UNSIGNED_TYPES,
        *(() if no_bool else (np.bool_,)),
        *(() if no_complex else _COMPLEX_TYPES),
    )


def for_dtypes(dtypes: Sequence[Any], name: str = "dtype") -> Callable[[DecoratedTest], DecoratedTest]:
    """Decorate a test so that it is called with each of the given dtypes, as scalar types."""
    return _make_choice_decorator([name], [(np.dtype(dtype).type,) for dtype in dtypes])


def for_all_dtypes(
    name: str = "dtype", no_float16: bool = False, no_bool: bool = False, no_complex: bool = False
) -> Callable[[DecoratedTest], DecoratedTest]:
    """Decorate a test like `for_dtypes`, with all dtypes of device arrays."""
    return for_dtypes(_list_all_dtypes(no_float16, no_bool, no_complex), name)


def for_float_dtypes(
    name: str = "dtype", no_float16: bool = False
) -> Callable[[DecoratedTest], DecoratedTest]:
    """Decorate a test like `for_dtypes`, with the real floating-point types."""
    return for_dtypes(_FLOAT_TYPES[: 2 if no_float16 else 3], name)


def for_signed_dtypes(name: str = "dtype") -> Callable[[DecoratedTest], DecoratedTest]:
    """Decorate a test like `for_dtypes`, with all signed integer types."""
    return for_dtypes(_SIGNED_TYPES, name)


def for_unsigned_dtypes(name: str = "dtype") -> Callable[[DecoratedTest], DecoratedTest]:
    """Decorate a test like `for_dtypes`, with all unsigned integer types."""
    return for_dtypes(_UNSIGNED_TYPES, name)


def for_int_dtypes(name: str = "dtype", no_bool: bool = False) -> Callable[[DecoratedTest], DecoratedTest]:
    """Decorate a test like `for_dtypes`, with all integer types and, unless `no_bool` is set, with bool."""
    return for_dtypes((*_SIGNED_TYPES, *_UNSIGNED_TYPES, *(() if no_bool else (np.bool_,))), name)


def for_complex_dtypes(name: str = "dtype") -> Callable[[DecoratedTest], DecoratedTest]:
    """Decorate a test like `for_dtypes`, with the complex types."""
    return for_dtypes(_COMPLEX_TYPES, name)


def for_dtypes_combination(
    types: Sequence[Any], names: Sequence[str] = ("dtype",), full: bool | None = None
) -> Callable[[DecoratedTest], DecoratedTest]:
    """Decorate a test so that it is called with combinations of dtypes. With `full`, all combinations of
    dtypes are used.

    Without `full` each dtype still occurs at each position, with itself and with others.
    """
    dtypes = [np.dtype(dtype).type for dtype in types]
    if full:
        return _make_choice_decorator(names, itertools.product(dtypes, repeat=len(names)))
    dtype_count = len(dtypes)
    index_shifts = {0, 1 % dtype_count, dtype_count // 2}
    combinations = [
        tuple(dtypes[(first_index + position * index_shift) % dtype_count] for position in range(len(names)))
        for index_shift in sorted(index_shifts)
        for first_index in range(dtype_count)
    ]
    return _make_choice_decorator(names, dict.fromkeys(combinations))


def for_all_dtypes_combination(
    names: Sequence[str] = ("dtype",),
    no_float16: bool = False,
    no_bool: bool = False,
    full: bool | None = None,
    no_complex: bool = False,
) -> Callable[[DecoratedTest], DecoratedTest]:
    """Decorate a test like `for_dtypes_combination`, with all dtypes."""
    return for_dtypes_combination(_list_all_dtypes(no_float16, no_bool, no_complex), names, full)


def for_signed_dtypes_combination(
    names: Sequence[str] = ("dtype",), full: bool | None = None
) -> Callable[[DecoratedTest], DecoratedTest]:
    """Decorate a test like `for_dtypes_combination`, with all signed integer types."""
    return for_dtypes_combination(_SIGNED_TYPES, names, full)


def for_unsigned_dtypes_combination(
    names: Sequence[str] = ("dtype",), full: bool | None = None
) -> Callable[[DecoratedTest], DecoratedTest]:
    """Decorate a test like `for_dtypes_combination`, with all unsigned integer types."""
    return for_dtypes_combination(_UNSIGNED_TYPES, names, full)


def for_int_dtypes_combination(
    names: Sequence[str] = ("dtype",), no_bool: bool = False, full: bool | None = None
) -> Callable[[DecoratedTest], DecoratedTest]:
    """Decorate a test like `for_dtypes_combination`, with all integer types and, unless `no_bool` is set,
    with bool.
    """
    dtypes = (*_SIGNED_TYPES, *_UNSIGNED_TYPES, *(() if no_bool else (np.bool_,)))
    return for_dtypes_combination(dtypes, names, full)


def for_orders(orders: Iterable[Any], name: str = "order") -> Callable[[DecoratedTest], DecoratedTest]:
    """Decorate a test so that it is called with each of the given memory orders."""
    return _make_choice_decorator([name], [(order,) for order in orders])


def for_CF_orders(name: str = "order") -> Callable[[DecoratedTest], DecoratedTest]:  # noqa: N802 - CuPy's name
    """Decorate a test like `for_orders`, with C and Fortran order."""
    return for_orders([None, "C", "F", "c", "f"], name)


def for_contiguous_axes(name: str = "axis") -> Callable[[DecoratedTest], DecoratedTest]:
    """Decorate a test method so that it runs once for each tuple of contiguous axes."""

    def decorate(impl: DecoratedTest) -> DecoratedTest:
        def test(self: Any, *args: Any, **kwargs: Any) -> None:
            axis_count = len(self.shape)
            is_fortran_order = self.order in ("f", "F")
            for index in range(axis_count):
                axis = (
                    tuple(range(index + 1))
                    if is_fortran_order
                    else tuple(range(axis_count - 1, axis_count - 2 - index, -1))
                )
                impl(self, *args, **kwargs, **{name: axis})

        return hide_arguments(impl, [name], test)

    return decorate


def product(parameters: Mapping[str, Sequence[Any]] | Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return all combinations of test parameters for `parameterize`. The parameters are given as a dict of
    lists or as lists of dicts.
    """
    if isinstance(parameters, Mapping):
        names = sorted(parameters)
        value_sets = itertools.product(*(parameters[name] for name in names))
        return [dict(zip(names, value_set, strict=True)) for value_set in value_sets]
    return product_dict(*parameters)


def product_dict(*parameters: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Merge one dict from each list into a single dict, and return these dicts for all combinations."""
    return [
        {name: value for parameter_dict in dict_set for name, value in parameter_dict.items()}
        for dict_set in itertools.product(*parameters)
    ]


def _create_test_classes(cls: type, attribute_sets: Sequence[Mapping[str, Any]]) -> type:
    """Create a `unittest` class for each set of attributes, and add the classes to the module."""
    module = sys.modules[cls.__module__]
    for set_index, attributes in enumerate(attribute_sets):

        def initialize(
            self: Any, *args: Any, attributes: Mapping[str, Any] = attributes, **kwargs: Any
        ) -> None:
            cls.__init__(self, *args, **kwargs)  # type: ignore[misc]
            self.__dict__.update(attributes)

        name = f"{cls.__name__}_{set_index}"
        setattr(
            module,
            name,
            type(name, (cls,), {"__init__": initialize, "__test__": True, "__module__": cls.__module__}),
        )
    cls.__test__ = False  # type: ignore[attr-defined]
    return cls


def parameterize(*params: Mapping[str, Any], _ids: bool = True) -> Callable[[type], type]:
    """Decorate a test class so that its tests run with each set of attributes. This requires pytest.

    If `_ids` is true, the names of the tests contain the attributes.
    """
    import pytest

    argument_name = "_virtualgpu_parameters"
    fixture_name = "_virtualgpu_parameterized"

    def decorate(cls: type) -> type:
        if hasattr(cls, fixture_name):
            raise RuntimeError(
                f"{cls.__name__} is parameterized twice. Combine the parameters with product_dict()."
            )

        def set_attributes(self: Any, _virtualgpu_parameters: Mapping[str, Any]) -> None:
            self.__dict__.update(_virtualgpu_parameters)

        attribute_sets = [dict(attributes) for attributes in params]
        if issubclass(cls, unittest.TestCase):
            return _create_test_classes(cls, attribute_sets)
        test_class = type(cls.__name__, (cls,), {fixture_name: pytest.fixture(autouse=True)(set_attributes)})
        test_class.__module__ = cls.__module__
        test_class.__qualname__ = cls.__qualname__
        test_class.__doc__ = cls.__doc__
        test_ids = [
            ", ".join(f"{key}={_format_value(value)}"[:100] for key, value in attributes.items())[:500]
            for attributes in attribute_sets
        ]
        return pytest.mark.parametrize(argument_name, attribute_sets, ids=test_ids if _ids else None)(
            test_class
        )

    return decorate
