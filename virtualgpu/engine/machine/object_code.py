"""What compiled code needs from outside: LLVM ends the process over a function that is not there."""

from __future__ import annotations

import itertools
import json
from collections.abc import Container, Sequence

import llvmlite.binding as llvm
import numpy as np

from virtualgpu.errors import NotSupportedError

# One entry of a 64-bit ELF symbol table (System V ABI, "Symbol Table").
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)


def packed(codes: Sequence[bytes]) -> bytes:
    """Object files that are linked with each other as one entry of a cache, with what they need besides."""
    found = [symbols(code) for code in codes]
    here = set().union(*(defined for _, defined in found))
    needs = sorted(set().union(*(used for used, _ in found)) - here)
    head = json.dumps({"sizes": [len(code) for code in codes], "needs": needs})
    return b"\n".join([head.encode(), b"".join(codes)])


def unpacked(data: bytes) -> tuple[list[bytes], list[str]]:
    """The object files of an entry, and the names that they need."""
    head, _, rest = data.partition(b"\n")
    facts = json.loads(head)
    ends = [*itertools.accumulate(facts["sizes"], initial=0)]
    return [rest[begin:end] for begin, end in itertools.pairwise(ends)], facts["needs"]


def check(needs: Sequence[str], known: Container[str]) -> None:
    """Refuse code that calls what neither this process, which has linked code before, nor `known` has.

    Raises
    ------
    NotSupportedError
        Naming the first missing function.
    """
    for name in needs:
        if name not in known and llvm.address_of_symbol(name) is None:
            raise NotSupportedError(
                f"The virtual GPU needs the function {name} for this kernel, which this computer's C library "
                "does not have; run the kernel on a real GPU."
            )


def symbols(code: bytes) -> tuple[set[str], set[str]]:
    """Names that an object file uses and does not define, and those that it defines; none where it is not ELF."""
    sections = {section.name(): section.data() for section in llvm.ObjectFileRef.from_data(code).sections()}
    table = sections.get(b".symtab")
    text = sections.get(b".strtab")
    if not table or not text:
        return set(), set()
    entries = np.frombuffer(table, _SYMBOL)
    used = set[str]()
    defined = set[str]()
    for start, section in zip(entries["name"].tolist(), entries["section"].tolist(), strict=True):
        if start:
            (defined if section else used).add(text[start : text.index(b"\0", start)].decode())
    return used, defined
