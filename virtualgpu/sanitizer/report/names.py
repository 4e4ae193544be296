"""What the source calls a place in memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from virtualgpu.model.memory import DeviceMemory
from virtualgpu.sanitizer.report.declarations import Declarations

_LOCAL_NAME = re.compile(r"E(\d+)([A-Za-z_][\w$]*)$")
_ARRAY = re.compile(r"(\w+) array of shape (\([\d, ]*\))")
_VARIABLE = re.compile(r"module variable (\S+)")


@dataclass(frozen=True, slots=True)
class Names:
    """Names of the places that a launch reaches.

    ``offsets`` and ``sizes`` are those of shared variables by their symbols, in bytes (size 0: as much as the
    launch asks for); ``pointers`` are the kernel's array parameters by the addresses they were given;
    ``words`` and ``local_words`` are granules of shared memory, and of each thread's own.
    """

    memory: DeviceMemory
    declared: Declarations
    offsets: Mapping[str, int]
    sizes: Mapping[str, int]
    pointers: Mapping[int, str]
    words: int
    local_words: int

    def shared(self, offset: int) -> str:
        """What lies at a byte of shared memory."""
        before = [(at, name) for name, at in self.offsets.items() if at <= offset]
        if not before:
            return f"byte {offset:,} of shared memory"
        at, symbol = max(before)
        name = spelled(symbol)
        found = self.declared.element(name, offset - at, self.sizes.get(symbol, 0))
        return found or f"byte {offset - at:,} of shared array {name}"

    def device(self, address: int) -> str:
        """What lies at an address: an element of a parameter's array, or of what the allocation is called."""
        found = self.memory.nearest(address)
        if found is None:
            return ""
        offset = address - found.address
        variable = _VARIABLE.fullmatch(found.label)
        if variable is not None:
            name = spelled(variable[1])
            return self.declared.element(name, offset, found.size_bytes) or (
                f"byte {offset:,} of the module variable {name}"
            )
        array = _ARRAY.search(found.label)
        if array is None:
            return f"byte {offset:,} of the {found.label}"
        size = np.dtype(array[1]).itemsize
        start = max((at for at in self.pointers if found.address <= at <= address), default=None)
        if start is None or (address - start) % size:
            return f"element {offset // size:,} of the {found.label}"
        name = f"{self.pointers[start]}[{(address - start) // size}]"
        shape = tuple(int(extent) for extent in array[2].strip("()").split(",") if extent.strip())
        if len(shape) > 1 and start == found.address and offset // size < np.prod(shape):
            index = ", ".join(str(int(n)) for n in np.unravel_index(offset // size, shape))
            return f"{name} ([{index}] of shape {array[2]})"
        return name


def spelled(symbol: str) -> str:
    """A variable as the source calls it: what a mangled name ends with."""
    match = _LOCAL_NAME.search(symbol)
    if not symbol.startswith("_Z") or match is None:
        return symbol
    return match[2][: int(match[1])]
