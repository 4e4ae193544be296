"""Reader of source variables from the debug sections of PTX that NVRTC generates with ``-G``.

The sections are DWARF 2 (https://dwarfstd.org/doc/dwarf-2.0.0.pdf, sections 7.5 and 7.7.3), written as
``.b8`` to ``.b64`` with labels. NVIDIA names a PTX register in ``DW_OP_regx`` by the ASCII codes of its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

_SECTION_PATTERN = re.compile(r"\.section\s+\.debug_(\w+)\s*\{(.*?)\}", re.S)
_DATA_PATTERN = re.compile(r"\.b(8|16|32|64)\s+([^\n]+)")
_TAG_SUBPROGRAM = 0x2E
_TAG_PARAMETER = 0x05
_TAG_BLOCK = 0x0B
_TAG_VARIABLE = 0x34
_TAG_POINTER = 0x0F
_TAG_BASE = 0x24
_TAG_TYPEDEF = 0x16
_TAG_CONST = 0x26
_TAG_VOLATILE = 0x35
_TAG_ENUM = 0x04
_TAG_ARRAY = 0x01
_TAG_SUBRANGE = 0x21
_TAG_STRUCT = 0x13
_TAG_UNION = 0x17
_TAG_MEMBER = 0x0D
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
_OP_REGX = 0x90
_OP_ADDR = 0x03
_OP_PLUS = 0x23
# Structs that contain one number.
_HALF_TYPES = {"__half": "f16", "__nv_bfloat16": "bf16"}
_TYPE_LETTERS = {0x02: "u", 0x04: "f", 0x05: "s", 0x06: "s", 0x07: "u", 0x08: "u"}
_FORM_BYTES = {0x01: 8, 0x0B: 1, 0x05: 2, 0x06: 4, 0x07: 8, 0x0C: 1, 0x11: 1, 0x12: 2, 0x13: 4, 0x14: 8}


@dataclass(frozen=True, slots=True)
class CType:
    """A C++ type without ``const``, such as a number, a pointer, an array or a struct.

    The field ``inner_key`` is the key of a pointer's target type or an array's element type. ``count`` is the
    number of elements (0 if it is open, -1 if the type is not an array). ``members`` are names, offsets in
    bytes and keys of types.
    """

    name: str
    size_bytes: int
    kind: str = ""
    inner_key: int | None = None
    count: int = -1
    members: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class DeclaredVariable:
    """A variable in the source code, with its scope and its registers or symbol in PTX.

    The field ``kind`` is the format of the value's bits, such as ``s32``, or empty for arrays and structs.
    The field ``ctype`` is the key of its type. The scope is given by two labels. ``parameter`` is its index
    among the parameters, -1 for other variables. ``function`` is empty for a variable outside of functions;
    ``offset`` is its distance in bytes from the symbol.
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
    """The bytes of a debug section, and the symbol names in it by position."""

    data: bytearray = field(default_factory=bytearray)
    symbol_names: dict[int, str] = field(default_factory=dict)


@dataclass
class _DebugEntry:
    tag: int
    has_children: bool
    attribute_values: dict[int, object]
    parent: _DebugEntry | None = None


def read_declared_variables(ptx: str) -> tuple[list[DeclaredVariable], dict[int, CType]]:
    """Return the variables and parameters of a kernel, and a table of their types.

    Both are empty if the PTX has no debug sections.
    """
    sections = {name: _assemble_section(section_text) for name, section_text in _SECTION_PATTERN.findall(ptx)}
    if not {"info", "abbrev"} <= sections.keys():
        return [], {}
    location_lists = sections.get("loc", _Section()).data  # missing if no variable moves
    debug_entries = dict(_read_entries(sections["info"], _read_abbreviations(bytes(sections["abbrev"].data))))
    ctypes_by_key = _read_types(debug_entries)
    variables = []
    last_parameter_index = dict[int, int]()
    for debug_entry in debug_entries.values():
        if (
            debug_entry.tag not in (_TAG_VARIABLE, _TAG_PARAMETER)
            or _AT_NAME not in debug_entry.attribute_values
        ):
            continue
        parent_entry = debug_entry.parent
        parameter_index = -1
        if debug_entry.tag == _TAG_PARAMETER:
            parameter_index = last_parameter_index[id(parent_entry)] = (
                last_parameter_index.get(id(parent_entry), -1) + 1
            )
        enclosing_function = parent_entry
        while enclosing_function is not None and enclosing_function.tag != _TAG_SUBPROGRAM:
            enclosing_function = enclosing_function.parent
        type_key = debug_entry.attribute_values.get(_AT_TYPE)
        ctype = ctypes_by_key.get(type_key) if isinstance(type_key, int) else None
        if ctype is None or (
            enclosing_function is not None and _AT_LOW not in enclosing_function.attribute_values
        ):
            continue
        registers: frozenset[str] = frozenset()
        location = debug_entry.attribute_values.get(_AT_LOCATION)
        symbol_name = ""
        symbol_offset = 0
        if isinstance(location, int):
            registers = _read_location_registers(location_lists, location)
        elif isinstance(location, _LocationExpression):
            registers = frozenset(filter(None, [_decode_register_name(location)]))
            if location[:1] == bytes([_OP_ADDR]):
                symbol_name = location.symbol
                symbol_offset = _read_uleb(location, 10)[0] if location[9:10] == bytes([_OP_PLUS]) else 0
        bounding_scope = (
            parent_entry
            if parent_entry is not None and _AT_LOW in parent_entry.attribute_values
            else enclosing_function
        )
        low_pc, high_pc = (
            str(bounding_scope.attribute_values[attribute]) if bounding_scope and enclosing_function else ""
            for attribute in (_AT_LOW, _AT_HIGH)
        )
        variables.append(
            DeclaredVariable(
                _demangle_name(str(debug_entry.attribute_values[_AT_NAME])),
                ctype.name,
                ctype.kind,
                int(str(debug_entry.attribute_values.get(_AT_DECLARED, 0))),
                str(enclosing_function.attribute_values[_AT_LOW]) if enclosing_function else "",
                (low_pc, high_pc),
                registers,
                parameter_index,
                int(str(type_key)),
                symbol_name,
                symbol_offset,
            )
        )
    return variables, ctypes_by_key


def _demangle_name(name: str) -> str:
    """Return the last part of a mangled name, without its namespaces."""
    remainder = name.removeprefix("_ZN") if name.startswith("_ZN") else ""
    while (length_match := re.match(r"\d+", remainder)) is not None:
        name = remainder[length_match.end() :][: int(length_match[0])]
        remainder = remainder[length_match.end() + int(length_match[0]) :]
    return name


class _LocationExpression(bytes):
    """The bytes of a DWARF location expression, and the symbol that it contains."""

    symbol = ""


def _assemble_section(section_text: str) -> _Section:
    section = _Section()
    for bit_width, values_text in _DATA_PATTERN.findall(section_text):
        size_bytes = int(bit_width) // 8
        for value_text in values_text.split(","):
            token = value_text.strip()
            token_value = int(token, 0) if token.lstrip("-").isdigit() or token.startswith("0x") else 0
            if not token_value and not token.lstrip("-")[:1].isdigit():
                symbol_name, _, offset_text = token.partition("+")
                section.symbol_names[len(section.data)] = symbol_name
                token_value = int(offset_text or 0)
            section.data += (token_value & ((1 << 8 * size_bytes) - 1)).to_bytes(size_bytes, "little")
    return section


def _read_uleb(data: bytes | bytearray, offset: int) -> tuple[int, int]:
    value = bit_shift = 0
    while True:
        byte = data[offset]
        value |= (byte & 127) << bit_shift
        offset = offset + 1
        bit_shift = bit_shift + 7
        if byte < 128:
            return value, offset


def _read_abbreviations(data: bytes) -> dict[int, tuple[int, bool, list[tuple[int, int]]]]:
    """Return for each abbreviation code its tag, whether it has children, and its attributes with forms."""
    abbreviations = {}
    offset = 0
    while offset < len(data):
        abbreviation_code, offset = _read_uleb(data, offset)
        if not abbreviation_code:
            break
        tag, offset = _read_uleb(data, offset)
        has_children = bool(data[offset])
        offset = offset + 1
        attributes = []
        while True:
            attribute_number, offset = _read_uleb(data, offset)
            form, offset = _read_uleb(data, offset)
            if not attribute_number and not form:
                break
            attributes.append((attribute_number, form))
        abbreviations[abbreviation_code] = tag, has_children, attributes
    return abbreviations


def _read_entries(
    info: _Section, abbreviations: dict[int, tuple[int, bool, list[tuple[int, int]]]]
) -> Iterator[tuple[int, _DebugEntry]]:
    """Yield the debugging entries and their offsets in the section; references to entries are offsets."""
    # Start after the header of the only compilation unit.
    info_bytes = info.data
    offset = 11
    parent: _DebugEntry | None = None
    while offset < len(info_bytes):
        entry_offset = offset
        abbreviation_code, offset = _read_uleb(info_bytes, offset)
        if not abbreviation_code:
            if parent is None:
                return
            parent = parent.parent
            continue
        tag, has_children, attributes = abbreviations[abbreviation_code]
        attribute_values: dict[int, object] = {}
        for attribute_number, form in attributes:
            attribute_values[attribute_number], offset = _read_value(info, offset, form)
        entry = _DebugEntry(tag, has_children, attribute_values, parent)
        yield entry_offset, entry
        if has_children:
            parent = entry


def _read_value(info: _Section, offset: int, form: int) -> tuple[object, int]:
    info_bytes = info.data
    if form == 0x08:  # a string, up to its zero
        string_end = info_bytes.index(0, offset)
        return info_bytes[offset:string_end].decode("latin-1"), string_end + 1
    if form in (0x0A, 0x03, 0x04):  # a block with its length before it
        length_bytes = {0x0A: 1, 0x03: 2, 0x04: 4}[form]
        block_bytes = int.from_bytes(info_bytes[offset : offset + length_bytes], "little")
        location_expression = _LocationExpression(
            info_bytes[offset + length_bytes : offset + length_bytes + block_bytes]
        )
        location_expression.symbol = info.symbol_names.get(offset + length_bytes + 1, "")
        return location_expression, offset + length_bytes + block_bytes
    if form in (0x0D, 0x0F):
        return _read_uleb(info_bytes, offset)
    length_bytes = _FORM_BYTES[form]
    symbol_name = info.symbol_names.get(offset, "")
    if form == 0x01:
        return symbol_name, offset + length_bytes
    return int.from_bytes(info_bytes[offset : offset + length_bytes], "little"), offset + length_bytes


def _read_types(entries: dict[int, _DebugEntry]) -> dict[int, CType]:
    """Return the types by the offsets of their debugging entries, with names as in C, but without const."""
    children_by_id: dict[int, list[_DebugEntry]] = {}
    for entry in entries.values():
        children_by_id.setdefault(id(entry.parent), []).append(entry)
    ctype_by_offset: dict[int, CType] = {}
    for offset in entries:
        _read_type(entries, children_by_id, ctype_by_offset, offset)
    return {
        offset: ctype for offset, ctype in ctype_by_offset.items() if ctype.size_bytes or ctype.count == 0
    }


def _read_type(
    entries: dict[int, _DebugEntry],
    children_by_id: dict[int, list[_DebugEntry]],
    ctype_by_offset: dict[int, CType],
    entry_offset: object,
) -> CType:
    entry = entries.get(entry_offset) if isinstance(entry_offset, int) else None
    if entry is None or not isinstance(entry_offset, int):
        return CType("void", 0)
    if entry_offset in ctype_by_offset:
        return ctype_by_offset[entry_offset]
    name = str(entry.attribute_values.get(_AT_NAME, ""))
    size_bytes = int(str(entry.attribute_values.get(_AT_SIZE, 0)))
    inner_type_key = entry.attribute_values.get(_AT_TYPE)
    inner_key = inner_type_key if isinstance(inner_type_key, int) else None
    type_letter = ""
    ctype = CType(name or "void", 0)
    if entry.tag in (_TAG_STRUCT, _TAG_UNION):
        struct_members = []
        for member_entry in children_by_id.get(id(entry), []):
            if member_entry.tag == _TAG_MEMBER and isinstance(
                member_entry.attribute_values.get(_AT_TYPE), int
            ):
                member_location = member_entry.attribute_values.get(_AT_MEMBER_LOCATION)
                member_offset = (
                    _read_uleb(member_location, 1)[0]
                    if isinstance(member_location, bytes) and member_location
                    else int(str(member_location or 0))
                )
                struct_members.append(
                    (
                        str(member_entry.attribute_values.get(_AT_NAME, "")),
                        member_offset,
                        int(str(member_entry.attribute_values[_AT_TYPE])),
                    )
                )
        ctype = CType(name, size_bytes, _HALF_TYPES.get(name, ""), members=tuple(struct_members))
    elif entry.tag in (_TAG_BASE, _TAG_ENUM):
        type_letter = (
            "s"
            if entry.tag == _TAG_ENUM
            else _TYPE_LETTERS.get(int(str(entry.attribute_values.get(_AT_ENCODING, 0))), "")
        )
        ctype = CType(name, size_bytes, f"{type_letter}{8 * size_bytes}" if type_letter else "")
    elif entry.tag == _TAG_POINTER:
        ctype = CType(
            f"{_read_type(entries, children_by_id, ctype_by_offset, inner_key).name}*", 8, "u64", inner_key
        )
    elif entry.tag == _TAG_ARRAY:
        ctype = _read_array_type(entries, children_by_id, ctype_by_offset, entry)
    elif entry.tag in (_TAG_TYPEDEF, _TAG_CONST, _TAG_VOLATILE):
        target_type = _read_type(entries, children_by_id, ctype_by_offset, inner_key)
        ctype = replace(target_type, name=name if entry.tag == _TAG_TYPEDEF else target_type.name)
    ctype_by_offset[entry_offset] = ctype
    return ctype


def _read_array_type(
    entries: dict[int, _DebugEntry],
    children_by_id: dict[int, list[_DebugEntry]],
    ctype_by_offset: dict[int, CType],
    entry: _DebugEntry,
) -> CType:
    """Return an array type with one or several dimensions; inner dimensions get separate negative keys."""
    type_key = entry.attribute_values.get(_AT_TYPE)
    element_type = _read_type(entries, children_by_id, ctype_by_offset, type_key)
    ctype = element_type
    shape_text = ""
    for subrange in reversed(
        [subrange for subrange in children_by_id.get(id(entry), []) if subrange.tag == _TAG_SUBRANGE]
    ):
        upper_index = subrange.attribute_values.get(_AT_UPPER)
        element_count = subrange.attribute_values.get(_AT_COUNT)
        dimension_length = 0
        if element_count is not None:
            dimension_length = int(str(element_count))
        elif upper_index is not None:
            dimension_length = int(str(upper_index)) + 1
        shape_text = f"[{dimension_length or ''}]{shape_text}"
        ctype = CType(
            f"{element_type.name}{shape_text}",
            dimension_length * ctype.size_bytes,
            inner_key=int(str(type_key)),
            count=dimension_length,
        )
        type_key = -1 - len(ctype_by_offset)
        ctype_by_offset[type_key] = ctype
    return ctype


def _read_location_registers(data: bytearray, offset: int) -> frozenset[str]:
    """Return the names of the registers in a location list of the debug sections.

    An item of the list has a pair of addresses, a length, and an expression.
    """
    register_names = set()
    has_register = True
    while has_register:
        expression_bytes = int.from_bytes(data[offset + 16 : offset + 18], "little")
        has_register = 0 < expression_bytes < 64 and data[offset + 18] == _OP_REGX
        if has_register:
            register_names.add(
                _decode_register_name(bytes(data[offset + 18 : offset + 18 + expression_bytes]))
            )
            offset += 18 + expression_bytes
    return frozenset(filter(None, register_names))


def _decode_register_name(expression: bytes) -> str:
    if not expression or expression[0] != _OP_REGX:
        return ""
    register_code, _ = _read_uleb(expression, 1)
    return register_code.to_bytes((register_code.bit_length() + 7) // 8, "big").decode("ascii", "replace")
