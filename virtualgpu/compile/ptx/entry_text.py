"""Positions in the PTX text of a kernel, so that other text can be inserted there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from virtualgpu.errors import PtxError

_SKIP_PATTERN = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)+", re.S)
_LABEL_PATTERN = re.compile(r"[A-Za-z_$%][\w$]*\s*:(?!:)")
_LINE_DIRECTIVE_PATTERN = re.compile(r"\.(?:loc|file)\b[^\n]*")
_STATEMENT_PATTERN = re.compile(r"[^;]*;", re.S)


@dataclass(frozen=True, slots=True)
class Statement:
    """A declaration or an instruction in PTX text, with its offsets in the text of the module."""

    start: int
    end: int
    text: str
    is_code: bool

    @property
    def plain(self) -> str:
        """Text of the PTX statement without comments and with single spaces."""
        return " ".join(_SKIP_PATTERN.sub(" ", self.text).split())


@dataclass(frozen=True, slots=True)
class EntryText:
    """The positions of a kernel's parameter list, code and statements in PTX text."""

    params_end: int
    has_parentheses: bool
    has_params: bool
    first_code_offset: int
    statements: tuple[Statement, ...]


def find_entry(ptx: str, kernel: str) -> EntryText:
    """Find a kernel in PTX text, and return the positions of its parts. The kernel is identified by its
    (mangled) name.

    Raises
    ------
    PtxError
        If the module has no such entry; the message lists its entries.
    """
    match = re.search(rf"\.entry\s+{re.escape(kernel)}(?![\w$])\s*", ptx)
    if not match:
        entry_names = ", ".join(re.findall(r"\.entry\s+([\w$]+)", ptx)) or "none"
        raise PtxError(f"The PTX does not contain kernel {kernel!r}. Its kernels: {entry_names}.")
    offset = match.end()
    has_parentheses = ptx.startswith("(", offset)
    params_end = ptx.index(")", offset) if has_parentheses else offset
    has_params = bool(ptx[offset:params_end].strip("( \t\r\n"))
    body_start = ptx.index("{", params_end) + 1
    statements: list[Statement] = []
    first_code_offset = -1
    for start, end, statement_kind in _scan_body(ptx, body_start):
        if statement_kind in ("code", "label") and first_code_offset < 0:
            first_code_offset = start
        if statement_kind != "label":
            statements.append(Statement(start, end, ptx[start:end], statement_kind == "code"))
    if first_code_offset < 0:
        raise PtxError(f"Kernel {kernel!r} has no instructions.")
    return EntryText(params_end, has_parentheses, has_params, first_code_offset, tuple(statements))


def find_instructions(ptx: str, function: str) -> tuple[Statement, ...]:
    """Return the instructions of a kernel or a device function in the order of the PTX text.

    Raises
    ------
    PtxError
        If the module does not define that function.
    """
    head_pattern = (
        rf"\.(?:entry|func)\b(?:\s*\.noreturn)?\s*(?:\([^)]*\)\s*)?{re.escape(function)}(?![\w$])[^;{{]*\{{"
    )
    match = re.search(head_pattern, ptx)
    if not match:
        raise PtxError(f"The PTX defines no function {function!r}.")
    statement_spans = _scan_body(ptx, match.end())
    return tuple(
        Statement(start, end, ptx[start:end], True)
        for start, end, statement_kind in statement_spans
        if statement_kind == "code"
    )


def _scan_body(ptx: str, offset: int) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and type of each label, declaration and instruction in a function's body."""
    brace_depth = 1
    while True:
        if match := _SKIP_PATTERN.match(ptx, offset):
            offset = match.end()
        character = ptx[offset : offset + 1]
        if character == "{":
            brace_depth += 1
            offset += 1
        elif character == "}":
            brace_depth -= 1
            offset += 1
            if not brace_depth:
                return
        elif match := _LINE_DIRECTIVE_PATTERN.match(ptx, offset):
            offset = match.end()
        elif character != "." and (match := _LABEL_PATTERN.match(ptx, offset)):
            yield offset, match.end(), "label"
            offset = match.end()
        elif match := _STATEMENT_PATTERN.match(ptx, offset):
            if match[0].strip() != ";":
                yield offset, match.end(), "declaration" if character == "." else "code"
            offset = match.end()
        else:
            raise PtxError("The PTX ends in the middle of a function.")


def apply_edits(ptx: str, edits: Sequence[tuple[int, str]]) -> str:
    """Insert strings into PTX text at given offsets. Strings at the same offset are inserted in the given
    order.
    """
    text_parts = []
    copied_end = 0
    for position, text in sorted(edits, key=lambda edit: edit[0]):
        text_parts += [ptx[copied_end:position], text]
        copied_end = position
    return "".join([*text_parts, ptx[copied_end:]])
