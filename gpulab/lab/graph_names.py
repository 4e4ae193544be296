"""What the program calls the arrays of a graph, and what these names mean now."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

from virtualgpu.records import GraphArray


@dataclass(frozen=True, slots=True, eq=False)
class Named:
    """An array whose address a graph has; ``look_up`` gives what its name means now, where one can know."""

    name: str
    array: Any
    look_up: Callable[[], Any] | None = None

    @property
    def now(self) -> Any:
        return self.array if self.look_up is None else self.look_up()

    def moved(self, array: Any) -> Named:
        """The name for another array; the variable is watched on if that is what it means."""
        return Named(self.name, array, self.look_up if self.now is array else None)

    def record(self) -> GraphArray:
        return array_record(self.name, self.array)


def array_record(name: str, array: Any, is_output: bool = False) -> GraphArray:
    """Name, place and kind of an array."""
    steps = zip(array.shape, array.strides, strict=True)
    size = sum((n - 1) * abs(step) for n, step in steps) + array.itemsize if array.size else 0
    return GraphArray(name, int(array.data.ptr), size, array.dtype.name, tuple(array.shape), is_output)


def named_arrays(
    fn: Callable[..., Any], arrays: tuple[Any, ...], caller: FrameType, ndarray: type
) -> tuple[Named, ...]:
    """The arrays that a function is called with, under the caller's names, and those that it reads itself.

    Parameters
    ----------
    caller
        The frame that passed the arrays. A variable of a notebook or module can be looked up later; one of a
        function counts as unchanged.
    """
    found: dict[str, Named] = {}
    own = _parameter_names(fn, len(arrays))
    for array, parameter in zip(arrays, own, strict=True):
        name = next((name for name, value in caller.f_locals.items() if value is array), "")
        at_top = caller.f_locals is caller.f_globals or name not in caller.f_code.co_varnames
        if name and at_top:
            found.setdefault(name, Named(name, array, _lookup(caller.f_globals, name)))
        else:
            found.setdefault(name or parameter, Named(name or parameter, array))
    for name, value, now in _outer_variables(fn):
        if isinstance(value, ndarray) and not any(value is known.array for known in found.values()):
            found.setdefault(name, Named(name, value, now))
    return tuple(found.values())


def global_arrays(fn: Any, addresses: Collection[int], ndarray: type) -> Iterator[Named]:
    """The global variables next to a function whose arrays have one of these addresses."""
    seen: dict[str, Any] = getattr(fn, "__globals__", {})
    for name, value in tuple(seen.items()) if addresses else ():
        if isinstance(value, ndarray) and not name.startswith("_"):
            array = array_record(name, value)
            if any(address in array for address in addresses):
                yield Named(name, value, _lookup(seen, name))


def _parameter_names(fn: Callable[..., Any], count: int) -> list[str]:
    try:
        names = list(inspect.signature(fn).parameters)
    except (TypeError, ValueError):
        names = []
    return [names[at] if at < len(names) else f"argument {at + 1}" for at in range(count)]


def _lookup(namespace: Mapping[str, Any], name: str) -> Callable[[], Any]:
    return lambda: namespace.get(name)


def _outer_variables(fn: Any) -> Iterator[tuple[str, Any, Callable[[], Any]]]:
    """Variables that a function uses without being given them: name, value, and how to look it up again."""
    code, seen = getattr(fn, "__code__", None), getattr(fn, "__globals__", {})
    if code is None:
        return
    for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents, partial(getattr, cell, "cell_contents", None)
        except ValueError:  # not assigned yet
            continue
    for name in code.co_names:
        if name in seen:
            yield name, seen[name], _lookup(seen, name)
