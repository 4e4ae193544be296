"""What a program calls its streams and arrays: the variables that its frames hold."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from types import FrameType
from typing import Any, Generic, TypeVar

import numpy as np

# Of a list, a tuple or a dictionary, so many members are looked at; of a frame, so many variables.
_MOST_MEMBERS = 64
_MOST_VARIABLES = 2_000
_LOOKS_A_LINE = 3
_ANY_DEVICE = -1  # of a stream that does not tell

Key = TypeVar("Key", bound=Hashable)


class _Called(Generic[Key]):
    """Names of one kind of things by what identifies them.

    A variable that has meant several things, as that of a loop does, gives way to a place in a list.
    """

    def __init__(self) -> None:
        self._plain: dict[Key, str] = {}
        self._inside: dict[Key, str] = {}  # of a list, a dictionary, an object
        self._meant: dict[str, Key] = {}
        self._several: set[str] = set()

    def add(self, number: Key, name: str) -> bool:
        """Note a name; True if that changes what something is called."""
        before = self.name(number), len(self._several)
        if not name.isidentifier():
            self._inside[number] = name
        else:
            if self._meant.setdefault(name, number) != number:
                self._several.add(name)
                self._meant[name] = number
            self._plain[number] = name
        return before != (self.name(number), len(self._several))

    def name(self, number: Key) -> str:
        plain = self._plain.get(number, "")
        if not plain or plain in self._several:
            return self._inside.get(number, plain)
        return plain

    def forget(self, gone: Callable[[Key], bool]) -> None:
        """Forget names of what is gone."""
        for names in (self._plain, self._inside):
            for number in [n for n in names if gone(n)]:
                del names[number]


class ProgramNames:
    """Names by the streams' handles and the arrays' addresses, of CuPy's classes and of those like them.

    A frame is looked at for each of its lines, since a line that assigns has not done so when it calls, and
    a few times for each, since a loop's variable may mean something else by then.

    Attributes
    ----------
    changes : int
        How often a stream's name was new or came to mean another one.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._seen: Counter[tuple[str, int]] = Counter()
        self._kinds: dict[type, str] = {}
        self._streams: _Called[tuple[int, int]] = _Called()
        self._arrays: _Called[int] = _Called()

    def look(self, frame: FrameType) -> None:
        """Take in what a frame holds at its present line."""
        key = (frame.f_code.co_filename, frame.f_lineno)
        if self._seen[key] == _LOOKS_A_LINE:
            return
        self._seen[key] += 1
        local, outer = frame.f_locals, frame.f_globals
        for variables in (outer, local) if local is not outer else (local,):
            if len(variables) <= _MOST_VARIABLES:
                self._take(list(variables.items()))
        if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            local.clear()  # a function's frame keeps this copy, which would keep every array alive

    def stream(self, device_id: int, handle: int) -> str:
        """The name of a stream, or nothing."""
        return self._streams.name((device_id, handle)) or self._streams.name((_ANY_DEVICE, handle))

    def array(self, address: int) -> str:
        """The name of an array that begins at an address, or nothing."""
        return self._arrays.name(address)

    def forget(self, start: int, end: int) -> None:
        """The memory belongs to others now."""
        self._arrays.forget(lambda address: start <= address < end)

    def _take(self, variables: Iterable[tuple[str, Any]]) -> None:
        for name, value in variables:
            if name.startswith("_"):
                continue
            kind = self._kind(type(value))
            if kind:
                self._note(kind, name, value)
            elif type(value) in (list, tuple, dict) and len(value) <= _MOST_MEMBERS:
                for place, member in _members(value):
                    inner = self._kind(type(member))
                    if inner:
                        self._note(inner, f"{name}[{place!r}]", member)
            elif name == "self":
                held = list(getattr(value, "__dict__", {}).items())
                self._take((f"self.{inner}", member) for inner, member in held if not inner.startswith("_"))

    def _kind(self, cls: type) -> str:
        kind = self._kinds.get(cls)
        if kind is None:
            if issubclass(cls, np.ndarray):
                kind = "host"
            elif hasattr(cls, "__cuda_array_interface__"):
                kind = "array"
            else:
                kind = "stream" if hasattr(cls, "wait_event") else ""
            self._kinds[cls] = kind
        return kind

    def _note(self, kind: str, name: str, value: Any) -> None:
        if kind == "stream":
            self.changes += self._streams.add(
                (int(getattr(value, "device_id", _ANY_DEVICE)), int(value.ptr)), name
            )
        elif kind == "host":
            self._arrays.add(value.__array_interface__["data"][0], name)
        elif value.size:
            self._arrays.add(int(value.data.ptr), name)


def _members(value: Any) -> Iterator[tuple[Any, Any]]:
    yield from list(value.items() if isinstance(value, dict) else enumerate(value))
