"""Names that the program uses for the arrays of a graph, and the present values of these names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import Any

from gpulab import session
from virtualgpu.records import GraphArray


@dataclass(frozen=True, slots=True, eq=False)
class NamedArray:
    """An array that a graph uses, with its name in the program.

    If the variable can be looked up later, the function ``look_up`` returns its current value. ``parameter``
    is the name of the array inside the captured function.
    """

    name: str
    array: Any
    look_up: Callable[[], Any] | None = None
    parameter: str = ""

    @property
    def current_array(self) -> Any:
        return self.array if self.look_up is None else self.look_up()

    def replace_array(self, array: Any) -> NamedArray:
        """Return a copy of this object for another array. The copy keeps `look_up` only if the name now
        refers to the new array.
        """
        return replace(self, array=array, look_up=self.look_up if self.current_array is array else None)

    def record(self) -> GraphArray:
        return make_array_record(self.name, self.array)


def make_array_record(name: str, array: Any, is_output: bool = False) -> GraphArray:
    """Return a record of an array with its name, address, size, shape and dtype."""
    axes = zip(array.shape, array.strides, strict=True)
    span_bytes = sum((n - 1) * abs(stride) for n, stride in axes) + array.itemsize if array.size else 0
    return GraphArray(name, int(array.data.ptr), span_bytes, array.dtype.name, tuple(array.shape), is_output)


def find_named_arrays(
    fn: Callable[..., Any], arrays: tuple[Any, ...], caller: FrameType, ndarray: type
) -> tuple[NamedArray, ...]:
    """Return the arrays that a function uses (arguments and global variables), with their names.

    Parameters
    ----------
    caller
        The frame of the caller. A variable of a notebook or module can be looked up later. A local variable
        of a function is taken as unchanged.
    """
    arrays_by_name: dict[str, NamedArray] = {}
    program_names = session.make_program_names()
    program_names.collect_names(caller)
    for array, parameter in zip(arrays, _find_parameter_names(fn, len(arrays)), strict=True):
        name = program_names.find_array_name(id(array))
        look_up_array = partial(look_up, name, caller.f_globals)
        named_array = NamedArray(
            name or parameter, array, look_up_array if look_up_array() is array else None, parameter
        )
        arrays_by_name.setdefault(named_array.name, named_array)
    for name, value, look_up_value in _find_outer_variables(fn):
        if isinstance(value, ndarray) and not any(
            value is known_array.array for known_array in arrays_by_name.values()
        ):
            name = program_names.find_array_name(id(value)) or name
            arrays_by_name.setdefault(name, NamedArray(name, value, look_up_value))
    return tuple(arrays_by_name.values())


def find_global_arrays(fn: Any, addresses: Collection[int], ndarray: type) -> Iterator[NamedArray]:
    """Yield the global arrays of a function's module whose addresses are in `addresses`."""
    variables: dict[str, Any] = getattr(fn, "__globals__", {})
    program_names = session.make_program_names()
    program_names.collect_from_variables(variables if addresses else {})
    for name in program_names.array_names():
        value = look_up(name, variables)
        if isinstance(value, ndarray):
            array = make_array_record(name, value)
            if any(address in array for address in addresses):
                yield NamedArray(name, value, partial(look_up, name, variables))


def _find_parameter_names(fn: Callable[..., Any], count: int) -> list[str]:
    try:
        parameter_names = list(inspect.signature(fn).parameters)
    except (TypeError, ValueError):
        parameter_names = []
    return [
        parameter_names[index] if index < len(parameter_names) else f"argument {index + 1}"
        for index in range(count)
    ]


def look_up(name: str, variables: dict[str, Any]) -> Any:
    """Return the current value of a name such as ``xs[0]`` or ``model.w`` in the dictionary `variables`, or
    None if there is none.
    """
    try:
        return eval(name, {}, variables)  # variables, items and attributes of the program: nothing is called
    except Exception:  # that of an item or attribute which is gone
        return None


def _find_outer_variables(fn: Any) -> Iterator[tuple[str, Any, Callable[[], Any]]]:
    """Yield the outer variables of a function: name, value, and a function that looks the value up again."""
    code_object = getattr(fn, "__code__", None)
    variables = getattr(fn, "__globals__", {})
    if code_object is None:
        return
    for name, cell in zip(code_object.co_freevars, fn.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents, partial(getattr, cell, "cell_contents", None)
        except ValueError:  # not assigned yet
            continue
    for name in code_object.co_names:
        if name in variables:
            yield name, variables[name], partial(look_up, name, variables)
