"""LLVM text of a long kernel in two: what is its own, and the functions it calls.

LLVM's time grows with the kernel's own code, which may be thousands of wide operations written out. In
two halves that code is little but calls (see `by_address`), translated in passing; the functions are few,
short and translated well. It computes the same, some 20 to 40 % more slowly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from virtualgpu.engine.machine.by_address import Rows, UnreadableError, by_address
from virtualgpu.engine.machine.pieces import declaration

_WARP = "define internal i32 @warp_"
_OWN = re.compile(r"define (?:internal )?\w+ @(?:warp_\d+|run_blocks?)\(")
_ROW = re.compile(r"<(\d+) x ([a-z]+)(\d*)>")
_BITS = {"half": 16, "float": 32, "double": 64, "ptr": 64}
# Translating a machine instruction of a wide operation, measured on kernels of 3,000 to 12,000 operations.
_S_PER_INSTRUCTION = 120e-6


@dataclass(frozen=True, slots=True)
class Halves:
    """Texts of two modules; `names` are the functions that `own` calls from `support`."""

    own: str
    support: str
    names: tuple[str, ...]


def whole_s(text: str, register_bytes: int) -> float:
    """Processor time that translating a kernel in one piece is likely to take."""
    instructions = 0.0
    own = False
    for line in text.split("\n"):
        if line.startswith("define "):
            own = line.startswith(_WARP)
        if own and (" = " in line or " store" in line or " call" in line):
            found = _ROW.search(line)
            if found is not None:
                bits = _BITS.get(found[2]) or int(found[3] or 1)
                instructions += max(1, int(found[1]) * bits / 8 / register_bytes)
    return instructions * _S_PER_INSTRUCTION


def split(text: str) -> Halves | None:
    """The halves of a kernel's text, or None for one with a line that `by_address` does not know."""
    own: list[str] = []
    support: list[str] = []
    declared: dict[str, str] = {}
    both: list[str] = []
    rows = Rows()
    function: list[str] = []
    into = support
    for line in text.split("\n"):
        if line.startswith("declare "):
            both.append(line)
            continue
        if line.startswith("define "):
            into = function if line.startswith(_WARP) else own if _OWN.match(line) else support
            if into is support and line.startswith("define internal "):
                name, declared[name] = declaration(line)
                line = line.replace("define internal", "define", 1)
        into.append(line)
        if line == "}":
            if into is function:
                try:
                    own += by_address(function, rows)
                except UnreadableError:
                    return None
                function = []
            into = support
    called = set(re.findall(r"@([\w.]+)", "\n".join(own)))
    names = [name for name in declared if name in called]
    head = [*both, *(declared[name] for name in names), *rows.declared, *rows.definitions()]
    return Halves(
        "\n".join([*head, *own]), "\n".join([*both, *support, *rows.texts]), (*names, *rows.names.values())
    )
