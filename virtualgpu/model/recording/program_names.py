"""Names that the program gives its streams and arrays, found in the variables of its frames.

All messages and views use the same names. A name is a variable (``x``), an item of a list, a tuple or a
dictionary (``xs[0]``) or an attribute (``model.w``, ``model.layers[0]``). A global variable is preferred to a
local one, a function to those that it calls, and within each a variable to an item or attribute.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from types import FrameType
from typing import Any, Generic, TypeVar

import numpy as np

from virtualgpu.model.recording.program_lines import ProgramLines

# Largest number of members of a list, a tuple, a dictionary or an object, and of variables of a frame.
_MAX_MEMBERS = 64
_MAX_VARIABLES = 2_000
_MAX_READS_PER_LINE = 3
_ANY_DEVICE = -1  # device of a stream without this attribute
_OWN_REFERENCES = 3  # references to a frame's variables if the program has none

ArrayKey = TypeVar("ArrayKey", bound=Hashable)
# Whether it is a view, its distance from the outermost frame, and its depth of members; the lowest is best.
NameRank = tuple[bool, int, int]


class _NameTable(Generic[ArrayKey]):
    """A table of the names of arrays or of streams, by key.

    If several objects were assigned to a variable, as in a loop, the name of an item of a list is preferred
    to that variable.
    """

    def __init__(self) -> None:
        self._variable_names: dict[ArrayKey, tuple[NameRank, str]] = {}
        self._member_names: dict[
            ArrayKey, tuple[NameRank, str]
        ] = {}  # of members of a list, dictionary or object
        self._object_of_variable: dict[str, ArrayKey] = {}
        self._reused_variables: set[str] = set()

    def add(self, key: ArrayKey, name: str, rank: NameRank) -> bool:
        """Add a name for an object, and return whether the best name of any object has changed."""
        previous_state = self.find_name(key), len(self._reused_variables)
        names = self._member_names
        if name.isidentifier():
            names = self._variable_names
            if self._object_of_variable.setdefault(name, key) != key:
                self._reused_variables.add(name)
                self._object_of_variable[name] = key
        if key not in names or rank <= names[key][0]:
            names[key] = rank, name
        return previous_state != (self.find_name(key), len(self._reused_variables))

    def find_name(self, key: ArrayKey) -> str:
        """Return the best name that was found for an object, or an empty string."""
        ranked_variable = self._variable_names.get(key)
        ranked_member = self._member_names.get(key)
        if ranked_variable is None or ranked_member is None:
            only_name = ranked_variable or ranked_member
            return only_name[1] if only_name is not None else ""
        prefers_member = ranked_variable[1] in self._reused_variables or ranked_member[0] < ranked_variable[0]
        return ranked_member[1] if prefers_member else ranked_variable[1]

    def list_names(self) -> list[str]:
        """Return the best name that was found for each object."""
        return [self.find_name(key) for key in {**self._variable_names, **self._member_names}]

    def forget_names(self, is_gone: Callable[[ArrayKey], bool]) -> None:
        """Remove the names of objects that no longer exist."""
        for names in (self._variable_names, self._member_names):
            for key in [key for key in names if is_gone(key)]:
                del names[key]


def address_of(array: Any) -> int:
    """Return the address of an array's first byte."""
    return int(array.data.ptr)


class ProgramNames:
    """A collector of the variable names that a program gives to its streams and arrays.

    The frames are examined at every line, because the result of a call gets its name only afterwards.

    Parameters
    ----------
    lines
        Identifies the program's frames.
    key
        Key of a device array: its address, or `id`.

    Attributes
    ----------
    change_count : int
        Number of times that a stream got a new name or a name was used for another stream.
    """

    def __init__(self, lines: ProgramLines, key: Callable[[Any], int] = address_of) -> None:
        self.change_count = 0
        self._lines = lines
        self._find_key = key
        self._read_counts: Counter[tuple[str, int]] = Counter()
        self._kind_by_class: dict[type, str] = {}
        self._stream_names: _NameTable[tuple[int, int]] = _NameTable()
        self._array_names: _NameTable[int] = _NameTable()

    def collect_names(self, frame: FrameType) -> None:
        """Collect the names of streams and arrays from the variables of a frame and its callers."""
        frames = list(self._lines.walk_program_frames(frame))
        for depth, program_frame in zip(range(len(frames), 0, -1), frames, strict=True):
            key = (program_frame.f_code.co_filename, program_frame.f_lineno)
            if self._read_counts[key] < _MAX_READS_PER_LINE:
                self._read_counts[key] += 1
                self._read_frame_names(program_frame, depth)

    def collect_from_variables(self, variables: Mapping[str, Any], depth: int = 0) -> None:
        """Collect the names of streams and arrays from a dictionary of variables. A ``depth`` of 0 means that
        the variables are global.
        """
        if len(variables) <= _MAX_VARIABLES:
            named_values = [(name, value) for name, value in list(variables.items()) if name.isidentifier()]
            self._add_variables(named_values, depth)

    def array_names(self) -> list[str]:
        """Return the best name that was found for each array."""
        return self._array_names.list_names()

    def _read_frame_names(self, frame: FrameType, depth: int) -> None:
        local_variables = frame.f_locals
        global_variables = frame.f_globals
        if local_variables is not global_variables:
            self.collect_from_variables(local_variables, depth)
        self.collect_from_variables(global_variables, 0)
        # A function's frame keeps this copy, which would keep every array alive. The program may have it too.
        if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            if sys.getrefcount(local_variables) <= _OWN_REFERENCES:
                local_variables.clear()

    def collect_again(self, frame: FrameType) -> None:
        """Forget the names of all arrays, and collect the names in a frame again."""
        self._read_counts.clear()
        self._array_names.forget_names(lambda _: True)
        self.collect_names(frame)

    def find_stream_name(self, device_id: int, handle: int) -> str:
        """Return the name of a stream, or an empty string."""
        return self._stream_names.find_name((device_id, handle)) or self._stream_names.find_name(
            (_ANY_DEVICE, handle)
        )

    def find_array_name(self, key: int) -> str:
        """Return the name of an array, or an empty string. A host array is identified by its address."""
        return self._array_names.find_name(key)

    def forget_arrays(self, start: int, end: int) -> None:
        """Remove the names of arrays in a memory range that has been allocated again."""
        self._array_names.forget_names(lambda address: start <= address < end)

    def _add_variables(
        self, variables: Iterable[tuple[str, Any]], depth: int, with_attributes: bool = True
    ) -> None:
        for name, value in variables:
            if name.startswith("_"):
                continue
            value_kind = self._find_kind(type(value))
            if value_kind == "object" and with_attributes:
                attributes = list(vars(value).items())[:_MAX_MEMBERS]
                named_members = [
                    (f"{name}.{attribute}", member_value)
                    for attribute, member_value in attributes
                    if not attribute.startswith("_")
                ]
                self._add_variables(named_members, depth, with_attributes=False)
            elif value_kind == "members" and len(value) <= _MAX_MEMBERS:
                for index, member_value in _find_keyed_members(value):
                    self._add_value(f"{name}[{index!r}]", member_value, depth)
            elif value_kind:
                self._add_value(name, value, depth)

    def _find_kind(self, cls: type) -> str:
        class_kind = self._kind_by_class.get(cls)
        if class_kind is None:
            if issubclass(cls, np.ndarray):
                class_kind = "host"
            elif hasattr(cls, "__cuda_array_interface__"):
                class_kind = "array"
            elif hasattr(cls, "wait_event"):
                class_kind = "stream"
            elif cls in (list, tuple, dict):
                class_kind = "members"
            elif cls.__dictoffset__ and self._lines.is_program_class(cls):
                class_kind = "object"
            else:
                class_kind = ""
            self._kind_by_class[cls] = class_kind
        return class_kind

    def _add_value(self, name: str, value: Any, depth: int) -> None:
        value_kind = self._find_kind(type(value))
        access_steps = name.count(".") + name.count("[")
        if value_kind == "stream":
            device_id = int(getattr(value, "device_id", _ANY_DEVICE))
            self.change_count += self._stream_names.add(
                (device_id, int(value.ptr)), name, (False, depth, access_steps)
            )
        elif value_kind == "host":
            address = value.__array_interface__["data"][0]
            self._array_names.add(address, name, (value.base is not None, depth, access_steps))
        elif value_kind == "array" and hasattr(value.data, "ptr") and value.size:
            self._array_names.add(self._find_key(value), name, (value.base is not None, depth, access_steps))


def _find_keyed_members(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the members of a list, tuple or dictionary with their indices or keys."""
    yield from list(value.items() if isinstance(value, dict) else enumerate(value))
