"""Names of memory locations as the source code writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from virtualgpu.model.memory import DeviceMemory
from virtualgpu.sanitizer.report.declarations import Declarations

_LOCAL_NAME_PATTERN = re.compile(r"E(\d+)([A-Za-z_][\w$]*)$")
_ARRAY_PATTERN = re.compile(r"(\w+) array of shape (\([\d, ]*\))")
_VARIABLE_PATTERN = re.compile(r"module variable (\S+)")


@dataclass(frozen=True, slots=True)
class Names:
    """The names of the memory that a launch accesses.

    The dictionary ``offsets`` contains the byte offset of each shared variable, and ``sizes`` contains its
    size in bytes, or 0 if the launch determines the size. The dictionary ``pointers`` maps addresses to the
    kernel's array parameters. The fields ``words`` and ``local_words`` are the numbers of granules in shared
    memory and in each thread's local memory.
    """

    memory: DeviceMemory
    declared: Declarations
    offsets: Mapping[str, int]
    sizes: Mapping[str, int]
    pointers: Mapping[int, str]
    words: int
    local_words: int

    def shared(self, offset: int) -> str:
        """Return the name of the array element at a byte offset in shared memory."""
        variables = [(start, symbol) for symbol, start in self.offsets.items() if start <= offset]
        if not variables:
            return f"byte {offset:,} of shared memory"
        start, symbol = max(variables)
        name = source_name(symbol)
        element = self.declared.element(name, offset - start, self.sizes.get(symbol, 0))
        return element or f"byte {offset - start:,} of shared array {name}"

    def device(self, address: int) -> str:
        """Return the name of the array element at an address in device memory."""
        allocation = self.memory.nearest(address)
        if allocation is None:
            return ""
        offset = address - allocation.address
        variable = _VARIABLE_PATTERN.fullmatch(allocation.label)
        if variable is not None:
            name = source_name(variable[1])
            return self.declared.element(name, offset, allocation.size_bytes) or (
                f"byte {offset:,} of the module variable {name}"
            )
        array = _ARRAY_PATTERN.search(allocation.label)
        if array is None:
            return f"byte {offset:,} of the {allocation.label}"
        size = np.dtype(array[1]).itemsize
        pointers = [pointer for pointer in self.pointers if allocation.address <= pointer <= address]
        start = max(pointers, default=None)
        if start is None or (address - start) % size:
            return f"element {offset // size:,} of the {allocation.label}"
        name = f"{self.pointers[start]}[{(address - start) // size}]"
        shape = tuple(int(extent) for extent in array[2].strip("()").split(",") if extent.strip())
        if len(shape) > 1 and start == allocation.address and offset // size < np.prod(shape):
            index = ", ".join(str(int(position)) for position in np.unravel_index(offset // size, shape))
            return f"{name} ([{index}] of shape {array[2]})"
        return name


def source_name(symbol: str) -> str:
    """Return the name of a variable in the source code, given its mangled symbol."""
    match = _LOCAL_NAME_PATTERN.search(symbol)
    if not symbol.startswith("_Z") or match is None:
        return symbol
    return match[2][: int(match[1])]
