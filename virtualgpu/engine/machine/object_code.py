"""What compiled code needs from outside: LLVM ends the process over a function that is not there."""

from __future__ import annotations

from collections.abc import Container

import llvmlite.binding as llvm
import numpy as np

from virtualgpu.errors import NotSupportedError

# One entry of a 64-bit ELF symbol table (System V ABI, "Symbol Table").
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)


def undefined(code: bytes) -> list[str]:
    """Names that an object file uses and does not define; none where it is not ELF."""
    sections = {section.name(): section.data() for section in llvm.ObjectFileRef.from_data(code).sections()}
    table, text = sections.get(b".symtab"), sections.get(b".strtab")
    if not table or not text:
        return []
    entries = np.frombuffer(table, _SYMBOL)
    starts = entries["name"][(entries["section"] == 0) & (entries["name"] > 0)]
    return [text[start : text.index(b"\0", start)].decode() for start in starts.tolist()]


def check(code: bytes, known: Container[str]) -> None:
    """Refuse code that calls what neither this process nor `known` has.

    Raises
    ------
    NotSupportedError
        Naming the first missing function.
    """
    for name in undefined(code):
        if name not in known and llvm.address_of_symbol(name) is None:
            raise NotSupportedError(
                f"The virtual GPU needs the function {name} for this kernel, which this computer's C library "
                "does not have; run the kernel on a real GPU."
            )
