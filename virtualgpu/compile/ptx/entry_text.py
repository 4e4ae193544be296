"""Where the pieces of one kernel stand in a PTX text, so that more can be put between them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from virtualgpu.errors import PtxError

_SKIP = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)+", re.S)
_LABEL = re.compile(r"[A-Za-z_$%][\w$]*\s*:(?!:)")
_LINE_DIRECTIVE = re.compile(r"\.(?:loc|file)\b[^\n]*")
_STATEMENT = re.compile(r"[^;]*;", re.S)


@dataclass(frozen=True, slots=True)
class Statement:
    """A declaration or an instruction, with its offsets in the module's text."""

    start: int
    end: int
    text: str
    is_code: bool

    @property
    def plain(self) -> str:
        """Without comments and with single spaces."""
        return " ".join(_SKIP.sub(" ", self.text).split())


@dataclass(frozen=True, slots=True)
class EntryText:
    """Offsets in the module's text: the end of the parameter list and the place before any code."""

    params_end: int
    has_parentheses: bool
    has_params: bool
    first_code: int
    statements: tuple[Statement, ...]


def find_entry(ptx: str, kernel: str) -> EntryText:
    """Find a kernel by its (mangled) name.

    Raises
    ------
    PtxError
        If the module has no such entry; the message names those it has.
    """
    found = re.search(rf"\.entry\s+{re.escape(kernel)}(?![\w$])\s*", ptx)
    if not found:
        entries = ", ".join(re.findall(r"\.entry\s+([\w$]+)", ptx)) or "none"
        raise PtxError(f"The PTX has no kernel {kernel!r}; it has {entries}.")
    at = found.end()
    has_parentheses = ptx.startswith("(", at)
    params_end = ptx.index(")", at) if has_parentheses else at
    has_params = bool(ptx[at:params_end].strip("( \t\r\n"))
    body = ptx.index("{", params_end) + 1
    statements: list[Statement] = []
    first_code = -1
    for start, end, kind in _scan(ptx, body):
        if kind in ("code", "label") and first_code < 0:
            first_code = start
        if kind != "label":
            statements.append(Statement(start, end, ptx[start:end], kind == "code"))
    if first_code < 0:
        raise PtxError(f"Kernel {kernel!r} has no instructions.")
    return EntryText(params_end, has_parentheses, has_params, first_code, tuple(statements))


def code_of(ptx: str, function: str) -> tuple[Statement, ...]:
    """Instructions of a kernel or a device function, in order.

    Raises
    ------
    PtxError
        If the module does not define that function.
    """
    head = (
        rf"\.(?:entry|func)\b(?:\s*\.noreturn)?\s*(?:\([^)]*\)\s*)?{re.escape(function)}(?![\w$])[^;{{]*\{{"
    )
    found = re.search(head, ptx)
    if not found:
        raise PtxError(f"The PTX defines no function {function!r}.")
    pieces = _scan(ptx, found.end())
    return tuple(Statement(start, end, ptx[start:end], True) for start, end, kind in pieces if kind == "code")


def _scan(ptx: str, at: int) -> Iterator[tuple[int, int, str]]:
    """Labels, declarations and instructions of one body, with their offsets."""
    depth = 1
    while True:
        if found := _SKIP.match(ptx, at):
            at = found.end()
        character = ptx[at : at + 1]
        if character == "{":
            depth += 1
            at += 1
        elif character == "}":
            depth -= 1
            at += 1
            if not depth:
                return
        elif found := _LINE_DIRECTIVE.match(ptx, at):
            at = found.end()
        elif character != "." and (found := _LABEL.match(ptx, at)):
            yield at, found.end(), "label"
            at = found.end()
        elif found := _STATEMENT.match(ptx, at):
            if found[0].strip() != ";":
                yield at, found.end(), "declaration" if character == "." else "code"
            at = found.end()
        else:
            raise PtxError("The PTX ends in the middle of a function.")


def apply_edits(ptx: str, edits: Sequence[tuple[int, str]]) -> str:
    """Insert texts at offsets; of those at one place the first given comes first."""
    pieces = []
    at = 0
    for position, text in sorted(edits, key=lambda edit: edit[0]):
        pieces += [ptx[at:position], text]
        at = position
    return "".join([*pieces, ptx[at:]])
