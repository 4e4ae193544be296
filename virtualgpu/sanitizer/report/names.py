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
class ElementNames:
    """The names of the memory that a launch accesses.

    The dictionary ``shared_offsets`` contains the byte offset of each shared variable, and ``shared_sizes``
    contains its size in bytes, or 0 if the launch determines the size. The dictionary
    ``parameter_by_address`` maps addresses to the kernel's array parameters. The fields ``shared_words`` and
    ``local_words`` are the numbers of granules in shared memory and in each thread's local memory.
    """

    memory: DeviceMemory
    declarations: Declarations
    shared_offsets: Mapping[str, int]
    shared_sizes: Mapping[str, int]
    parameter_by_address: Mapping[int, str]
    shared_words: int
    local_words: int

    def name_shared_element(self, offset: int) -> str:
        """Return the name of the array element at a byte offset in shared memory."""
        preceding_variables = [
            (start, symbol) for symbol, start in self.shared_offsets.items() if start <= offset
        ]
        if not preceding_variables:
            return f"byte {offset:,} of shared memory"
        start, symbol = max(preceding_variables)
        variable_name = source_name(symbol)
        element_name = self.declarations.find_element_name(
            variable_name, offset - start, self.shared_sizes.get(symbol, 0)
        )
        return element_name or f"byte {offset - start:,} of shared array {variable_name}"

    def name_device_element(self, address: int) -> str:
        """Return the name of the array element at an address in device memory."""
        allocation = self.memory.find_nearest_allocation(address)
        if allocation is None:
            return ""
        offset = address - allocation.address
        variable_match = _VARIABLE_PATTERN.fullmatch(allocation.label)
        if variable_match is not None:
            name = source_name(variable_match[1])
            return self.declarations.find_element_name(name, offset, allocation.size_bytes) or (
                f"byte {offset:,} of the module variable {name}"
            )
        array_match = _ARRAY_PATTERN.search(allocation.label)
        if array_match is None:
            return f"byte {offset:,} of the {allocation.label}"
        item_bytes = np.dtype(array_match[1]).itemsize
        pointers = [
            pointer for pointer in self.parameter_by_address if allocation.address <= pointer <= address
        ]
        array_start = max(pointers, default=None)
        if array_start is None or (address - array_start) % item_bytes:
            return f"element {offset // item_bytes:,} of the {allocation.label}"
        name = f"{self.parameter_by_address[array_start]}[{(address - array_start) // item_bytes}]"
        shape = tuple(int(extent) for extent in array_match[2].strip("()").split(",") if extent.strip())
        if len(shape) > 1 and array_start == allocation.address and offset // item_bytes < np.prod(shape):
            index_text = ", ".join(
                str(int(position)) for position in np.unravel_index(offset // item_bytes, shape)
            )
            return f"{name} ([{index_text}] of shape {array_match[2]})"
        return name


def source_name(symbol: str) -> str:
    """Return the name of a variable in the source code, given its mangled symbol."""
    match = _LOCAL_NAME_PATTERN.search(symbol)
    if not symbol.startswith("_Z") or match is None:
        return symbol
    return match[2][: int(match[1])]
