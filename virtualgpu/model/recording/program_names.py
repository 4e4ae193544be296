"""What a program calls its streams and arrays: the variables that its frames hold.

One rule for everything that speaks of them. A name is a variable (``x``), an item of a list, a tuple or a
dictionary (``xs[0]``) or an attribute (``model.w``, ``model.layers[0]``). A global variable goes before a
local one, a function before those that it calls, and within each a variable before an item or attribute.
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

# Of a list, a tuple, a dictionary or an object, so many members are looked at; of a frame, so many variables.
_MOST_MEMBERS = 64
_MOST_VARIABLES = 2_000
_LOOKS_A_LINE = 3
_ANY_DEVICE = -1  # of a stream that does not tell
_OURS = 3  # references to a frame's variables that nobody else holds

Key = TypeVar("Key", bound=Hashable)
# Of a view, how far from the program's outermost frame, and through how many members: the least names best.
Rank = tuple[bool, int, int]


class _Called(Generic[Key]):
    """Names of one kind of things by what identifies them.

    A variable that has meant several things, as that of a loop does, gives way to a place in a list.
    """

    def __init__(self) -> None:
        self._plain: dict[Key, tuple[Rank, str]] = {}
        self._inside: dict[Key, tuple[Rank, str]] = {}  # of a list, a dictionary, an object
        self._meant: dict[str, Key] = {}
        self._several: set[str] = set()

    def add(self, key: Key, name: str, rank: Rank) -> bool:
        """Note a name; True if that changes what something is called."""
        before = self.name(key), len(self._several)
        names = self._inside
        if name.isidentifier():
            names = self._plain
            if self._meant.setdefault(name, key) != key:
                self._several.add(name)
                self._meant[name] = key
        if key not in names or rank <= names[key][0]:
            names[key] = rank, name
        return before != (self.name(key), len(self._several))

    def name(self, key: Key) -> str:
        plain = self._plain.get(key)
        inside = self._inside.get(key)
        if plain is None or inside is None:
            return (plain or inside or ((), ""))[1]
        return inside[1] if plain[1] in self._several or inside[0] < plain[0] else plain[1]

    def all(self) -> list[str]:
        return [self.name(key) for key in {**self._plain, **self._inside}]

    def forget(self, gone: Callable[[Key], bool]) -> None:
        """Forget names of what is gone."""
        for names in (self._plain, self._inside):
            for key in [each for each in names if gone(each)]:
                del names[key]


def address_of(array: Any) -> int:
    """Where an array begins."""
    return int(array.data.ptr)


class ProgramNames:
    """Names of streams, by their handles, and of arrays, of CuPy's classes and of those like them.

    A frame is looked at for each of its lines, since a line that assigns has not done so when it calls, and
    a few times for each, since a loop's variable may mean something else by then.

    Parameters
    ----------
    lines
        Tells the program's frames from others.
    key
        What identifies a device's array: where it begins, or `id`.

    Attributes
    ----------
    changes : int
        How often a stream's name was new or came to mean another one.
    """

    def __init__(self, lines: ProgramLines, key: Callable[[Any], int] = address_of) -> None:
        self.changes = 0
        self._lines = lines
        self._key = key
        self._seen: Counter[tuple[str, int]] = Counter()
        self._kinds: dict[type, str] = {}
        self._streams: _Called[tuple[int, int]] = _Called()
        self._arrays: _Called[int] = _Called()

    def look(self, frame: FrameType) -> None:
        """Take in what a frame, and those that called it, hold at their present lines."""
        frames = list(self._lines.outward(frame))
        for depth, each in zip(range(len(frames), 0, -1), frames, strict=True):
            key = (each.f_code.co_filename, each.f_lineno)
            if self._seen[key] < _LOOKS_A_LINE:
                self._seen[key] += 1
                self._look(each, depth)

    def take(self, variables: Mapping[str, Any], depth: int = 0) -> None:
        """Take in what variables hold, by default global ones."""
        if len(variables) <= _MOST_VARIABLES:
            self._take([each for each in list(variables.items()) if each[0].isidentifier()], depth)

    def called(self) -> list[str]:
        """All names of arrays."""
        return self._arrays.all()

    def _look(self, frame: FrameType, depth: int) -> None:
        local = frame.f_locals
        outer = frame.f_globals
        for variables, rank in ((local, depth), (outer, 0)) if local is not outer else ((outer, 0),):
            self.take(variables, rank)
        # A function's frame keeps this copy, which would keep every array alive. The program may have it too.
        if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            variables = {}
            if sys.getrefcount(local) <= _OURS:
                local.clear()

    def look_anew(self, frame: FrameType) -> None:
        """`look`, as if for the first time: what things were called before does not count."""
        self._seen.clear()
        self._arrays.forget(lambda _: True)
        self.look(frame)

    def stream(self, device_id: int, handle: int) -> str:
        """The name of a stream, or nothing."""
        return self._streams.name((device_id, handle)) or self._streams.name((_ANY_DEVICE, handle))

    def array(self, key: int) -> str:
        """The name of an array, or nothing; of the host's by where they begin."""
        return self._arrays.name(key)

    def forget(self, start: int, end: int) -> None:
        """The memory belongs to others now."""
        self._arrays.forget(lambda address: start <= address < end)

    def _take(self, variables: Iterable[tuple[str, Any]], depth: int, whole: bool = True) -> None:
        for name, value in variables:
            if name.startswith("_"):
                continue
            kind = self._kind(type(value))
            if kind == "object" and whole:
                held = list(vars(value).items())[:_MOST_MEMBERS]
                inner = [(f"{name}.{each}", member) for each, member in held if not each.startswith("_")]
                self._take(inner, depth, whole=False)
            elif kind == "members" and len(value) <= _MOST_MEMBERS:
                for place, member in _members(value):
                    self._note(f"{name}[{place!r}]", member, depth)
            elif kind:
                self._note(name, value, depth)

    def _kind(self, cls: type) -> str:
        kind = self._kinds.get(cls)
        if kind is None:
            if issubclass(cls, np.ndarray):
                kind = "host"
            elif hasattr(cls, "__cuda_array_interface__"):
                kind = "array"
            elif hasattr(cls, "wait_event"):
                kind = "stream"
            elif cls in (list, tuple, dict):
                kind = "members"
            elif cls.__dictoffset__ and self._lines.is_own_class(cls):
                kind = "object"
            else:
                kind = ""
            self._kinds[cls] = kind
        return kind

    def _note(self, name: str, value: Any, depth: int) -> None:
        kind = self._kind(type(value))
        steps = name.count(".") + name.count("[")
        if kind == "stream":
            device_id = int(getattr(value, "device_id", _ANY_DEVICE))
            self.changes += self._streams.add((device_id, int(value.ptr)), name, (False, depth, steps))
        elif kind == "host":
            address = value.__array_interface__["data"][0]
            self._arrays.add(address, name, (value.base is not None, depth, steps))
        elif kind == "array" and hasattr(value.data, "ptr") and value.size:
            self._arrays.add(self._key(value), name, (value.base is not None, depth, steps))


def _members(value: Any) -> Iterator[tuple[Any, Any]]:
    yield from list(value.items() if isinstance(value, dict) else enumerate(value))
