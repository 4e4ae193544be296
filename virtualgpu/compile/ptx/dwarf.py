"""Variables of the source, read off the debug sections of PTX that NVRTC makes with ``-G``.

The sections are DWARF 2 (https://dwarfstd.org/doc/dwarf-2.0.0.pdf, sections 7.5 and 7.7.3), written as
``.b8`` to ``.b64`` with labels. NVIDIA names a PTX register in ``DW_OP_regx`` by the ASCII codes of its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_SECTION = re.compile(r"\.section\s+\.debug_(\w+)\s*\{(.*?)\}", re.S)
_DATA = re.compile(r"\.b(8|16|32|64)\s+([^\n]+)")
_SUBPROGRAM, _PARAMETER, _BLOCK, _VARIABLE = 0x2E, 0x05, 0x0B, 0x34
_POINTER, _BASE, _TYPEDEF, _CONST, _VOLATILE = 0x0F, 0x24, 0x16, 0x26, 0x35
_AT_LOCATION, _AT_NAME, _AT_SIZE, _AT_LOW, _AT_HIGH = 0x02, 0x03, 0x0B, 0x11, 0x12
_AT_ENCODING, _AT_DECLARED, _AT_TYPE = 0x3E, 0x3B, 0x49
_REGX = 0x90
_KINDS = {0x02: "u", 0x04: "f", 0x05: "s", 0x06: "s", 0x07: "u", 0x08: "u"}
_FIXED = {0x01: 8, 0x0B: 1, 0x05: 2, 0x06: 4, 0x07: 8, 0x0C: 1, 0x11: 1, 0x12: 2, 0x13: 4, 0x14: 8}


@dataclass(frozen=True, slots=True)
class Declared:
    """A scalar variable: where it is declared, its scope as labels, the registers that ever hold it.

    ``kind`` reads its bits, such as ``s32``; ``parameter`` is its place among the parameters, -1 for none.
    """

    name: str
    type: str
    kind: str
    line: int
    function: str
    scope: tuple[str, str]
    registers: frozenset[str]
    parameter: int = -1


@dataclass
class _Section:
    """Bytes, and the names that stand in them by place."""

    data: bytearray = field(default_factory=bytearray)
    names: dict[int, str] = field(default_factory=dict)


@dataclass
class _Entry:
    tag: int
    children: bool
    values: dict[int, object]
    parent: _Entry | None = None


def declared_variables(ptx: str) -> list[Declared]:
    """Scalar variables and parameters of all functions; none in PTX without debug sections."""
    sections = {name: _assembled(text) for name, text in _SECTION.findall(ptx)}
    if not {"info", "abbrev", "loc"} <= sections.keys():
        return []
    entries = dict(_entries(sections["info"], _abbreviations(bytes(sections["abbrev"].data))))
    found, parameters = [], dict[int, int]()
    for entry in entries.values():
        if entry.tag not in (_VARIABLE, _PARAMETER) or _AT_NAME not in entry.values:
            continue
        scope = entry.parent
        place = -1
        if entry.tag == _PARAMETER:
            place = parameters[id(scope)] = parameters.get(id(scope), -1) + 1
        function = scope
        while function is not None and function.tag != _SUBPROGRAM:
            function = function.parent
        text, kind = _type(entries, entry.values.get(_AT_TYPE))
        if scope is None or function is None or not kind or _AT_LOW not in function.values:
            continue
        registers: frozenset[str] = frozenset()
        location = entry.values.get(_AT_LOCATION)
        if isinstance(location, int):
            registers = _registers(sections["loc"].data, location)
        elif isinstance(location, bytes):
            registers = frozenset(filter(None, [_register(location)]))
        bounds = scope if _AT_LOW in scope.values else function
        found.append(Declared(
            str(entry.values[_AT_NAME]), text, kind, int(str(entry.values.get(_AT_DECLARED, 0))),
            str(function.values[_AT_LOW]), (str(bounds.values[_AT_LOW]), str(bounds.values[_AT_HIGH])),
            registers, place,
        ))  # fmt: skip
    return found


def _assembled(text: str) -> _Section:
    section = _Section()
    for width, values in _DATA.findall(text):
        size = int(width) // 8
        for value in values.split(","):
            word = value.strip()
            number = int(word, 0) if word.lstrip("-").isdigit() or word.startswith("0x") else 0
            if not number and not word.lstrip("-")[:1].isdigit():
                name, _, offset = word.partition("+")
                section.names[len(section.data)] = name
                number = int(offset or 0)
            section.data += (number & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    return section


def _uleb(data: bytes | bytearray, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _abbreviations(data: bytes) -> dict[int, tuple[int, bool, list[tuple[int, int]]]]:
    """Code -> tag, whether it has children, attributes with their forms."""
    known, at = {}, 0
    while at < len(data):
        code, at = _uleb(data, at)
        if not code:
            break
        tag, at = _uleb(data, at)
        children, at = bool(data[at]), at + 1
        attributes = []
        while True:
            name, at = _uleb(data, at)
            form, at = _uleb(data, at)
            if not name and not form:
                break
            attributes.append((name, form))
        known[code] = tag, children, attributes
    return known


def _entries(
    info: _Section, known: dict[int, tuple[int, bool, list[tuple[int, int]]]]
) -> Iterator[tuple[int, _Entry]]:
    """Debugging entries by their place in the section; references are places."""
    data, at = info.data, 11  # after the header of the one compilation unit
    parent: _Entry | None = None
    while at < len(data):
        place = at
        code, at = _uleb(data, at)
        if not code:
            if parent is None:
                return
            parent = parent.parent
            continue
        tag, children, attributes = known[code]
        values: dict[int, object] = {}
        for name, form in attributes:
            values[name], at = _value(info, at, form)
        entry = _Entry(tag, children, values, parent)
        yield place, entry
        if children:
            parent = entry


def _value(info: _Section, at: int, form: int) -> tuple[object, int]:
    data = info.data
    if form == 0x08:  # a string, up to its zero
        end = data.index(0, at)
        return data[at:end].decode("latin-1"), end + 1
    if form in (0x0A, 0x03, 0x04):  # a block with its length before it
        width = {0x0A: 1, 0x03: 2, 0x04: 4}[form]
        size = int.from_bytes(data[at : at + width], "little")
        return bytes(data[at + width : at + width + size]), at + width + size
    if form in (0x0D, 0x0F):
        return _uleb(data, at)
    width = _FIXED[form]
    name = info.names.get(at, "")
    if form == 0x01:
        return name, at + width
    return int.from_bytes(data[at : at + width], "little"), at + width


def _type(entries: dict[int, _Entry], place: object) -> tuple[str, str]:
    """A type as C writes it, without const, and as PTX reads its bits; no kind for what no register holds."""
    entry = entries.get(place) if isinstance(place, int) else None
    if entry is None:
        return "void", ""
    name = str(entry.values.get(_AT_NAME, ""))
    if entry.tag == _BASE:
        kind = _KINDS.get(int(str(entry.values.get(_AT_ENCODING, 0))), "")
        return name, f"{kind}{8 * int(str(entry.values[_AT_SIZE]))}" if kind else ""
    inner, kind = _type(entries, entry.values.get(_AT_TYPE))
    if entry.tag == _POINTER:
        return f"{inner}*", "u64"
    if entry.tag == _TYPEDEF:
        return name, kind
    return (inner, kind) if entry.tag in (_CONST, _VOLATILE) else ("", "")


def _registers(data: bytearray, at: int) -> frozenset[str]:
    """Registers in a location list: pairs of addresses, a length, an expression."""
    found, labelled = set(), True
    while labelled:
        size = int.from_bytes(data[at + 16 : at + 18], "little")
        labelled = 0 < size < 64 and data[at + 18] == _REGX
        if labelled:
            found.add(_register(bytes(data[at + 18 : at + 18 + size])))
            at += 18 + size
    return frozenset(filter(None, found))


def _register(expression: bytes) -> str:
    if not expression or expression[0] != _REGX:
        return ""
    number, _ = _uleb(expression, 1)
    return number.to_bytes((number.bit_length() + 7) // 8, "big").decode("ascii", "replace")
