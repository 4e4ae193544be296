"""LLVM text of a kernel in pieces: what is its own, and each function that it shares with other kernels.

Of a short kernel's text nine tenths are functions that every kernel has: how lanes load, what is counted,
how a block runs. Each is a module of its own, the same text whichever kernel it comes from, so that LLVM
translates it once; what it makes of the pieces is linked when it is loaded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_OWN = re.compile(r"warp_\d+|row\.")
# Where a kernel is entered; whatever these do not come to is left out.
ENTRIES = ("run_blocks", "run_block")
_DEFINED = re.compile(r"define (?:internal )?(?P<result>.+?) @(?P<name>[\w.]+)\((?P<arguments>.*?)\)")
_NAMED = re.compile(r"@([\w.]+)")
_ARGUMENT = re.compile(r" %[\w.]+")


@dataclass(frozen=True, slots=True)
class Piece:
    """A module's text, and whether other kernels have the same."""

    text: str
    shared: bool


@dataclass(slots=True)
class _Function:
    """A function's text, how others declare it, and the names in it."""

    text: str
    declaration: str
    uses: set[str]


def declaration(definition: str) -> tuple[str, str]:
    """A function's name, and the line that declares it to modules that call it, from the line that begins it.

    Raises
    ------
    ValueError
        If the line begins no function.
    """
    found = _DEFINED.match(definition)
    if found is None:
        raise ValueError(f"no function begins with {definition!r}")
    kinds = _ARGUMENT.sub("", found["arguments"])
    return found["name"], f"declare {found['result']} @{found['name']}({kinds})"


def pieces(text: str, entries: tuple[str, ...] = ENTRIES) -> list[Piece]:
    """The functions that these come to as modules, each after those that it calls: so LLVM's linker needs no
    detours between them.

    Parameters
    ----------
    text
        A module as `virtualgpu.engine.lower` writes them: each function from a line that begins with
        ``define`` to one that ends with ``}``, and a line each for what is declared and for constants.
    entries
        The functions that are called from outside.
    """
    functions, others = _read(text)
    order: dict[str, None] = {}
    _reach(functions, [name for name in entries if name in functions], order)
    own = [name for name in order if _OWN.match(name)]
    made = []
    for name in order:
        if name not in own:
            made.append(Piece(_module([name], functions, others), True))
        elif name == own[-1]:
            made.append(Piece(_module(own, functions, others), False))
    return made


def _reach(functions: dict[str, _Function], names: list[str], reached: dict[str, None]) -> None:
    """Note the functions that these come to, each after those that it calls."""
    waiting = [(name, False) for name in reversed(names)]
    begun: set[str] = set()
    while waiting:
        name, is_done = waiting.pop()
        if is_done:
            reached.setdefault(name)
        elif name not in begun:
            begun.add(name)
            waiting.append((name, True))
            inner = sorted(functions[name].uses & functions.keys())
            waiting += [(other, False) for other in reversed(inner) if other not in begun]


def _read(text: str) -> tuple[dict[str, _Function], dict[str, str]]:
    """The functions of a module by name, and its declarations and constants."""
    functions: dict[str, _Function] = {}
    others: dict[str, str] = {}
    lines: list[str] = []
    for line in text.split("\n"):
        if not lines and not line.startswith("define "):
            if found := _NAMED.search(line):
                others[found[1]] = line
            continue
        lines.append(line)
        if line.endswith("}") and (line == "}" or len(lines) == 1):
            name, declared = declaration(lines[0])
            body = "\n".join([lines[0].replace("define internal ", "define ", 1), *lines[1:]])
            functions[name] = _Function(body, declared, set(_NAMED.findall(body)) - {name})
            lines = []
    return functions, others


def _module(names: list[str], functions: dict[str, _Function], others: dict[str, str]) -> str:
    used = set().union(*(functions[name].uses for name in names)) - set(names)
    head = [functions[name].declaration if name in functions else others[name] for name in sorted(used)]
    return "\n".join([*head, *(functions[name].text for name in names)])
