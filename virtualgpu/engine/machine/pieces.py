"""Division of a kernel's LLVM text: its own functions, and each function that it shares with other kernels.

Of a short kernel's text nine tenths are functions that every kernel has: how lanes load, what is counted,
how a block runs. Each is a separate module with the same text for every kernel, so that LLVM
translates it once; the pieces are linked when they are loaded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_UNSHARED_NAME_PATTERN = re.compile(r"warp_\d+|row\.")
# Functions by which a kernel is entered; functions that they do not reach are left out.
ENTRY_FUNCTIONS = ("run_blocks", "run_block")
_DEFINITION_PATTERN = re.compile(
    r"define (?:internal )?(?P<result>.+?) @(?P<name>[\w.]+)\((?P<arguments>.*?)\)"
)
_GLOBAL_NAME_PATTERN = re.compile(r"@([\w.]+)")
_ARGUMENT_PATTERN = re.compile(r" %[\w.]+")


@dataclass(frozen=True, slots=True)
class CodePiece:
    """The text of an LLVM module, with a flag that tells whether kernels share it."""

    text: str
    is_shared: bool


@dataclass(slots=True)
class _Function:
    """A function of an LLVM module: its text, its declaration, and the names that it uses."""

    text: str
    declaration: str
    used_names: set[str]


def make_declaration(definition: str) -> tuple[str, str]:
    """Return the name and the declaration of an LLVM function, given the first line of its definition.

    Raises
    ------
    ValueError
        If the line begins no function.
    """
    match = _DEFINITION_PATTERN.match(definition)
    if match is None:
        raise ValueError(f"{definition!r} is not the first line of a function")
    argument_types = _ARGUMENT_PATTERN.sub("", match["arguments"])
    return match["name"], f"declare {match['result']} @{match['name']}({argument_types})"


def split_by_sharing(text: str, entry_names: tuple[str, ...] = ENTRY_FUNCTIONS) -> list[CodePiece]:
    """Split an LLVM module into modules that kernels can share. Functions that are never called are omitted.

    Each function comes after those that it calls.

    Parameters
    ----------
    text
        A module as `virtualgpu.engine.lower` writes them: each function from a line that begins with
        ``define`` to one that ends with ``}``, and one line for each declaration and constant.
    entry_names
        The functions that are called from outside.
    """
    functions, declarations = _parse_module(text)
    reachable_names: dict[str, None] = {}
    _add_callees(functions, [name for name in entry_names if name in functions], reachable_names)
    own_names = [name for name in reachable_names if _UNSHARED_NAME_PATTERN.match(name)]
    module_pieces = []
    for name in reachable_names:
        if name not in own_names:
            module_pieces.append(CodePiece(_join_module([name], functions, declarations), True))
        elif name == own_names[-1]:
            module_pieces.append(CodePiece(_join_module(own_names, functions, declarations), False))
    return module_pieces


def _add_callees(functions: dict[str, _Function], names: list[str], reachable_names: dict[str, None]) -> None:
    """Add the functions that `names` call, directly or indirectly, to `reachable_names`, callees first."""
    pending_visits = [(name, False) for name in reversed(names)]
    visited_names: set[str] = set()
    while pending_visits:
        name, is_done = pending_visits.pop()
        if is_done:
            reachable_names.setdefault(name)
        elif name not in visited_names:
            visited_names.add(name)
            pending_visits.append((name, True))
            callees = sorted(functions[name].used_names & functions.keys())
            pending_visits += [(callee, False) for callee in reversed(callees) if callee not in visited_names]


def _parse_module(text: str) -> tuple[dict[str, _Function], dict[str, str]]:
    """Return the functions of a module by name, and its declarations and constants."""
    functions: dict[str, _Function] = {}
    declarations: dict[str, str] = {}
    function_lines: list[str] = []
    for line in text.split("\n"):
        if not function_lines and not line.startswith("define "):
            if match := _GLOBAL_NAME_PATTERN.search(line):
                declarations[match[1]] = line
            continue
        function_lines.append(line)
        if line.endswith("}") and (line == "}" or len(function_lines) == 1):
            name, declaration_line = make_declaration(function_lines[0])
            function_text = "\n".join(
                [function_lines[0].replace("define internal ", "define ", 1), *function_lines[1:]]
            )
            functions[name] = _Function(
                function_text, declaration_line, set(_GLOBAL_NAME_PATTERN.findall(function_text)) - {name}
            )
            function_lines = []
    return functions, declarations


def _join_module(names: list[str], functions: dict[str, _Function], declarations: dict[str, str]) -> str:
    used_names = set().union(*(functions[name].used_names for name in names)) - set(names)
    head_lines = [
        functions[name].declaration if name in functions else declarations[name]
        for name in sorted(used_names)
    ]
    return "\n".join([*head_lines, *(functions[name].text for name in names)])
