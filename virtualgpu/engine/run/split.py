"""LLVM text of a large kernel in two: what is its own, and the support functions it calls.

LLVM needs several times as long for the kernel's own code, which is long and mostly calls, when it is to
make it fast. What runs longest are the support functions, few and short.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Lines of a warp function from which it is translated quickly, and to which: each line may take stack space.
_FEWEST, _MOST = 15_000, 120_000
_OWN = re.compile(r"define (?:internal )?\w+ @(?:warp_\d+|run_blocks?)\(")
_SUPPORT = re.compile(r"define internal (.+?) @([\w.]+)\((.*)\)")
_NAME = re.compile(r" %[\w.]+")


@dataclass(frozen=True, slots=True)
class Halves:
    """Texts of two modules; `names` are the functions that `own` calls from `support`."""

    own: str
    support: str
    names: tuple[str, ...]


def split(text: str) -> Halves | None:
    """The halves of a kernel's text, or None for one that is better translated whole.

    Kernels with calls keep to one piece: their functions may recur, and quick translation takes more
    stack.
    """
    if text.count("define internal i32 @warp_") != 1:
        return None
    own: list[str] = []
    support: list[str] = []
    declared: dict[str, str] = {}
    both = [line for line in text.split("\n") if line.startswith("declare ")]
    into = support
    for line in text.split("\n"):
        if line.startswith("declare "):
            continue
        if line.startswith("define "):
            into = own if _OWN.match(line) else support
            found = _SUPPORT.match(line)
            if into is support and found is not None:
                kinds = ", ".join(_NAME.sub("", kind) for kind in _arguments(found[3]))
                declared[found[2]] = f"declare {found[1]} @{found[2]}({kinds})"
                line = line.replace("define internal", "define", 1)
        into.append(line)
        if line == "}":
            into = support
    if not _FEWEST <= len(own) <= _MOST:
        return None
    called = set(re.findall(r"@([\w.]+)\(", "\n".join(own)))
    names = tuple(name for name in declared if name in called)
    head = "\n".join(both)
    return Halves(
        "\n".join([head, *(declared[name] for name in names), *own]), "\n".join([head, *support]), names
    )


def _arguments(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")] if text else []
