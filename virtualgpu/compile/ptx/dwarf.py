"""Variables of the source, read off the debug sections of PTX that NVRTC makes with ``-G``.

The sections are DWARF 2 (https://dwarfstd.org/doc/dwarf-2.0.0.pdf, sections 7.5 and 7.7.3), written as
``.b8`` to ``.b64`` with labels. NVIDIA names a PTX register in ``DW_OP_regx`` by the ASCII codes of its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

_SECTION = re.compile(r"\.section\s+\.debug_(\w+)\s*\{(.*?)\}", re.S)
_DATA = re.compile(r"\.b(8|16|32|64)\s+([^\n]+)")
_SUBPROGRAM = 0x2E
_PARAMETER = 0x05
_BLOCK = 0x0B
_VARIABLE = 0x34
_POINTER = 0x0F
_BASE = 0x24
_TYPEDEF = 0x16
_CONST = 0x26
_VOLATILE = 0x35
_ENUM = 0x04
_ARRAY = 0x01
_SUBRANGE = 0x21
_STRUCT = 0x13
_UNION = 0x17
_MEMBER = 0x0D
_AT_COUNT = 0x37
_AT_UPPER = 0x2F
_AT_MEMBER_LOCATION = 0x38
_AT_LOCATION = 0x02
_AT_NAME = 0x03
_AT_SIZE = 0x0B
_AT_LOW = 0x11
_AT_HIGH = 0x12
_AT_ENCODING = 0x3E
_AT_DECLARED = 0x3B
_AT_TYPE = 0x49
_REGX = 0x90
_ADDR = 0x03
_PLUS = 0x23
# Structs that hold one number.
_NUMBERS = {"__half": "f16", "__nv_bfloat16": "bf16"}
_KINDS = {0x02: "u", 0x04: "f", 0x05: "s", 0x06: "s", 0x07: "u", 0x08: "u"}
_FIXED = {0x01: 8, 0x0B: 1, 0x05: 2, 0x06: 4, 0x07: 8, 0x0C: 1, 0x11: 1, 0x12: 2, 0x13: 4, 0x14: 8}


@dataclass(frozen=True, slots=True)
class CType:
    """A type of the source, without const: a number (``kind``, as ``s32``), a pointer, an array, a struct.

    ``of`` is the key of the type pointed to, or of an array's elements, of which it has ``count`` (0 if that
    is open, -1 for what is no array). ``members`` are names, offsets in bytes and keys of types.
    """

    name: str
    size_bytes: int
    kind: str = ""
    of: int | None = None
    count: int = -1
    members: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Declared:
    """A variable: where it is declared, its scope as labels, the registers that ever hold it, or its symbol.

    ``kind`` reads its bits, such as ``s32``, and is empty for arrays and structs; ``ctype`` is the key of its
    type. ``parameter`` is its place among the parameters, -1 for none. ``function`` is empty for a variable
    outside of functions; ``offset`` is its place in bytes after the symbol.
    """

    name: str
    type: str
    kind: str
    line: int
    function: str
    scope: tuple[str, str]
    registers: frozenset[str]
    parameter: int = -1
    ctype: int = 0
    symbol: str = ""
    offset: int = 0


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


def declared_variables(ptx: str) -> tuple[list[Declared], dict[int, CType]]:
    """Variables and parameters, with the table of types; none of either in PTX without debug sections."""
    sections = {name: _assembled(text) for name, text in _SECTION.findall(ptx)}
    if not {"info", "abbrev"} <= sections.keys():
        return [], {}
    lists = sections.get("loc", _Section()).data  # left out where no variable moves
    entries = dict(_entries(sections["info"], _abbreviations(bytes(sections["abbrev"].data))))
    types = _types(entries)
    found = []
    parameters = dict[int, int]()
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
        key = entry.values.get(_AT_TYPE)
        ctype = types.get(key) if isinstance(key, int) else None
        if ctype is None or (function is not None and _AT_LOW not in function.values):
            continue
        registers: frozenset[str] = frozenset()
        location = entry.values.get(_AT_LOCATION)
        symbol = ""
        offset = 0
        if isinstance(location, int):
            registers = _registers(lists, location)
        elif isinstance(location, _Block):
            registers = frozenset(filter(None, [_register(location)]))
            if location[:1] == bytes([_ADDR]):
                symbol = location.symbol
                offset = _uleb(location, 10)[0] if location[9:10] == bytes([_PLUS]) else 0
        bounds = scope if scope is not None and _AT_LOW in scope.values else function
        low, high = (str(bounds.values[at]) if bounds and function else "" for at in (_AT_LOW, _AT_HIGH))
        found.append(
            Declared(
                _written(str(entry.values[_AT_NAME])),
                ctype.name,
                ctype.kind,
                int(str(entry.values.get(_AT_DECLARED, 0))),
                str(function.values[_AT_LOW]) if function else "",
                (low, high),
                registers,
                place,
                int(str(key)),
                symbol,
                offset,
            )
        )
    return found, types


def _written(name: str) -> str:
    """A name without the namespaces that it is given with, mangled."""
    rest = name.removeprefix("_ZN") if name.startswith("_ZN") else ""
    while (length := re.match(r"\d+", rest)) is not None:
        name = rest[length.end() :][: int(length[0])]
        rest = rest[length.end() + int(length[0]) :]
    return name


class _Block(bytes):
    """A location's expression, and the symbol that stands in it."""

    symbol = ""


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
        at = at + 1
        shift = shift + 7
        if byte < 128:
            return value, at


def _abbreviations(data: bytes) -> dict[int, tuple[int, bool, list[tuple[int, int]]]]:
    """Code -> tag, whether it has children, attributes with their forms."""
    known = {}
    at = 0
    while at < len(data):
        code, at = _uleb(data, at)
        if not code:
            break
        tag, at = _uleb(data, at)
        children = bool(data[at])
        at = at + 1
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
    # after the header of the one compilation unit
    data = info.data
    at = 11
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
        block = _Block(data[at + width : at + width + size])
        block.symbol = info.names.get(at + width + 1, "")
        return block, at + width + size
    if form in (0x0D, 0x0F):
        return _uleb(data, at)
    width = _FIXED[form]
    name = info.names.get(at, "")
    if form == 0x01:
        return name, at + width
    return int.from_bytes(data[at : at + width], "little"), at + width


def _types(entries: dict[int, _Entry]) -> dict[int, CType]:
    """Types by the places of their entries: as C writes them, without const, and as PTX reads their bits."""
    inside: dict[int, list[_Entry]] = {}
    for entry in entries.values():
        inside.setdefault(id(entry.parent), []).append(entry)
    found: dict[int, CType] = {}
    for place in entries:
        _type(entries, inside, found, place)
    return {place: ctype for place, ctype in found.items() if ctype.size_bytes or ctype.count == 0}


def _type(
    entries: dict[int, _Entry], inside: dict[int, list[_Entry]], found: dict[int, CType], place: object
) -> CType:
    entry = entries.get(place) if isinstance(place, int) else None
    if entry is None or not isinstance(place, int):
        return CType("void", 0)
    if place in found:
        return found[place]
    name = str(entry.values.get(_AT_NAME, ""))
    size = int(str(entry.values.get(_AT_SIZE, 0)))
    key = entry.values.get(_AT_TYPE)
    of = key if isinstance(key, int) else None
    kind = ""
    made = CType(name or "void", 0)
    if entry.tag in (_STRUCT, _UNION):
        members = []
        for each in inside.get(id(entry), []):
            if each.tag == _MEMBER and isinstance(each.values.get(_AT_TYPE), int):
                at = each.values.get(_AT_MEMBER_LOCATION)
                offset = _uleb(at, 1)[0] if isinstance(at, bytes) and at else int(str(at or 0))
                members.append((str(each.values.get(_AT_NAME, "")), offset, int(str(each.values[_AT_TYPE]))))
        made = CType(name, size, _NUMBERS.get(name, ""), members=tuple(members))
    elif entry.tag in (_BASE, _ENUM):
        kind = "s" if entry.tag == _ENUM else _KINDS.get(int(str(entry.values.get(_AT_ENCODING, 0))), "")
        made = CType(name, size, f"{kind}{8 * size}" if kind else "")
    elif entry.tag == _POINTER:
        made = CType(f"{_type(entries, inside, found, of).name}*", 8, "u64", of)
    elif entry.tag == _ARRAY:
        made = _array(entries, inside, found, entry)
    elif entry.tag in (_TYPEDEF, _CONST, _VOLATILE):
        inner = _type(entries, inside, found, of)
        made = replace(inner, name=name if entry.tag == _TYPEDEF else inner.name)
    found[place] = made
    return made


def _array(
    entries: dict[int, _Entry], inside: dict[int, list[_Entry]], found: dict[int, CType], entry: _Entry
) -> CType:
    """An array of one or several dimensions; the inner ones get keys of their own, below 0."""
    key = entry.values.get(_AT_TYPE)
    element = _type(entries, inside, found, key)
    made = element
    shape = ""
    for each in reversed([each for each in inside.get(id(entry), []) if each.tag == _SUBRANGE]):
        upper = each.values.get(_AT_UPPER)
        count = each.values.get(_AT_COUNT)
        many = int(str(count)) if count is not None else int(str(upper)) + 1 if upper is not None else 0
        shape = f"[{many or ''}]{shape}"
        made = CType(f"{element.name}{shape}", many * made.size_bytes, of=int(str(key)), count=many)
        key = -1 - len(found)
        found[key] = made
    return made


def _registers(data: bytearray, at: int) -> frozenset[str]:
    """Registers in a location list: pairs of addresses, a length, an expression."""
    found = set()
    labelled = True
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
