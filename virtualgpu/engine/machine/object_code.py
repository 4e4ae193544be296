"""Check of the symbols that compiled code needs; LLVM ends the process if a function is missing."""

from __future__ import annotations

import itertools
import json
from collections.abc import Container, Sequence

import llvmlite.binding as llvm
import numpy as np

from virtualgpu.errors import NotSupportedError

# One entry of a 64-bit ELF symbol table (System V ABI, "Symbol Table").
_SYMBOL_DTYPE = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)


def pack(codes: Sequence[bytes]) -> bytes:
    """Return a cache entry that contains object files and the external names that they need."""
    symbol_sets = [read_symbols(object_code) for object_code in codes]
    defined_names = set().union(*(names for _, names in symbol_sets))
    required_names = sorted(set().union(*(used_names for used_names, _ in symbol_sets)) - defined_names)
    header_text = json.dumps({"sizes": [len(object_code) for object_code in codes], "needs": required_names})
    return b"\n".join([header_text.encode(), b"".join(codes)])


def unpack(data: bytes) -> tuple[list[bytes], list[str]]:
    """Return the object files in a cache entry, and the external names that they need."""
    header_text, _, object_codes = data.partition(b"\n")
    header = json.loads(header_text)
    code_ends = [*itertools.accumulate(header["sizes"], initial=0)]
    return [
        object_codes[code_begin:code_end] for code_begin, code_end in itertools.pairwise(code_ends)
    ], header["needs"]


def check_required_names(required_names: Sequence[str], available_names: Container[str]) -> None:
    """Raise an error if machine code calls a function that is not available.

    Raises
    ------
    NotSupportedError
        Naming the first missing function.
    """
    for name in required_names:
        if name not in available_names and llvm.address_of_symbol(name) is None:
            raise NotSupportedError(
                f"For this kernel, the virtual GPU needs the function {name}, which this computer's C "
                "library does not have. Run the kernel on a real GPU."
            )


def read_symbols(code: bytes) -> tuple[set[str], set[str]]:
    """Return the names that an object file needs from other files, and the names that it defines.

    Only ELF files are supported.
    """
    sections = {section.name(): section.data() for section in llvm.ObjectFileRef.from_data(code).sections()}
    symbol_table = sections.get(b".symtab")
    name_section = sections.get(b".strtab")
    if not symbol_table or not name_section:
        return set(), set()
    symbol_rows = np.frombuffer(symbol_table, _SYMBOL_DTYPE)
    used_names = set[str]()
    defined_names = set[str]()
    for name_offset, section in zip(
        symbol_rows["name"].tolist(), symbol_rows["section"].tolist(), strict=True
    ):
        if name_offset:
            name = name_section[name_offset : name_section.index(b"\0", name_offset)].decode()
            if section:
                defined_names.add(name)
            else:
                used_names.add(name)
    return used_names, defined_names
