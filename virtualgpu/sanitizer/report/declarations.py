"""Names of array elements in the source, such as ``tile[2][0]``, from the declarations of arrays.

In PTX an array has only a size in bytes. The declaration contains its shape and type; a value that is not in
the source (a template's parameter, a macro of the command line) follows from the array's size.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_COMMENT_PATTERN = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_DEFINE_PATTERN = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(.+?)[ \t]*$", re.M)
_CONSTANTS_PATTERN = re.compile(r"\bconst(?:expr)?\s+([^;(){}]+);")
_CONSTANT_PATTERN = re.compile(r"(\w+)\s*=\s*(.+)$", re.S)
_DECLARATION_PATTERN = re.compile(
    r"\b__(?:shared|device|constant|managed)__\s+((?:[^;(){}=\[\]]|\[[^;{}\]]*\])+?)\s*[;={]"
)
_DECLARATOR_PATTERN = re.compile(
    r"^(?P<type>.*?)(?P<pointer>[*\s])\s*(?P<name>\w+)\s*(?P<extents>(?:\[[^\]]*\]\s*)*)$", re.S
)
_ALIGNMENT_PATTERN = re.compile(r"\b(?:__align__|alignas)\s*\([^()]*(?:\([^()]*\))?[^()]*\)")
_QUALIFIER_PATTERN = re.compile(
    r"\b(?:volatile|const|static|extern|struct|unsigned|"
    r"signed|__shared__|__device__|__constant__|__restrict__)\b"
)
_EXTENT_PATTERN = re.compile(r"\[([^\]]*)\]")
_TYPE_BYTES = {
    "char": 1,
    "bool": 1,
    "int8_t": 1,
    "uint8_t": 1,
    "short": 2,
    "int16_t": 2,
    "uint16_t": 2,
    "half": 2,
    "__half": 2,
    "__nv_bfloat16": 2,
    "nv_bfloat16": 2,
    "int": 4,
    "": 4,
    "float": 4,
    "int32_t": 4,
    "uint32_t": 4,
    "half2": 4,
    "__half2": 4,
    "uint": 4,
    "double": 8,
    "long": 8,
    "long long": 8,
    "size_t": 8,
    "int64_t": 8,
    "uint64_t": 8,
    "float2": 8,
    "int2": 8,
    "uint2": 8,
    "float4": 16,
    "int4": 16,
    "uint4": 16,
    "double2": 16,
    "float3": 12,
    "int3": 12,
    "uint3": 12,
    "char4": 4,
    "uchar4": 4,
}
_MAX_TRIALS = 65_536  # largest value that is tried for one that is not in the source


@dataclass(frozen=True, slots=True)
class Declaration:
    """The type and array sizes of a variable, as declared in the source."""

    type: str
    extents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Declarations:
    """The variables of a source file in shared, global and constant memory, and the constants that it
    defines.
    """

    variables: Mapping[str, Sequence[Declaration]]
    constants: Mapping[str, str]

    def find_element_name(self, name: str, offset: int, size_bytes: int) -> str:
        """Return the name of the array element at a byte offset of a variable, such as ``tile[2][0]``.

        The name is empty if the declaration does not contain enough information.

        Parameters
        ----------
        name
            The variable's name in the source.
        offset
            Offset in bytes.
        size_bytes
            Size of the variable; 0 if the launch determines it.
        """
        element_names = {
            self._make_element_name(name, declaration, offset, size_bytes)
            for declaration in self.variables.get(name, ())
        }
        element_names.discard("")
        return element_names.pop() if len(element_names) == 1 else ""

    def _make_element_name(self, name: str, declaration: Declaration, offset: int, size_bytes: int) -> str:
        element_bytes = _TYPE_BYTES.get(declaration.type, 0)
        shape = self._find_shape(
            declaration.extents, size_bytes // element_bytes if element_bytes and size_bytes else 0
        )
        if shape is None:
            return ""
        if size_bytes:
            element_count = math.prod(shape)
            if size_bytes % element_count or (element_bytes and element_bytes * element_count != size_bytes):
                return ""
            element_bytes = size_bytes // element_count
        if not element_bytes:
            return ""
        element_index, byte_offset = divmod(offset, element_bytes)
        indices = []
        for extent in reversed(shape[1:]):
            element_index, index = divmod(element_index, extent)
            indices.append(index)
        indices = [element_index, *reversed(indices)] if shape else []
        element_name = name + "".join(f"[{index}]" for index in indices)
        vector_type = re.fullmatch(r"[a-z]+([234])", declaration.type)
        if vector_type and not byte_offset % (element_bytes // int(vector_type[1])):
            return f"{element_name}.{'xyzw'[byte_offset // (element_bytes // int(vector_type[1]))]}"
        return f"byte {byte_offset} of {element_name}" if byte_offset else element_name

    def _find_shape(self, extents: Sequence[str], element_count: int) -> list[int] | None:
        """Return the extents of an array as numbers.

        If one name is unknown, its value is computed from `count`, the number of elements.
        """
        if extents and not extents[0].strip():  # an array of unknown length
            inner_shape = self._find_shape(extents[1:], 0)
            if inner_shape is None:
                return None
            return [max(element_count // math.prod(inner_shape), 1), *inner_shape]
        unknown_names = {
            name for extent_text in extents for name in self._find_unknown_names(extent_text, ())
        }
        if not unknown_names:
            return self._evaluate_extents(extents, {})
        if len(unknown_names) > 1 or not element_count:
            return None
        (name,) = unknown_names
        for trial_value in range(1, min(element_count, _MAX_TRIALS) + 1):
            shape = self._evaluate_extents(extents, {name: trial_value})
            if shape is None or math.prod(shape) > element_count:
                return None
            if math.prod(shape) == element_count:
                return shape
        return None

    def _evaluate_extents(self, extents: Sequence[str], known_values: Mapping[str, int]) -> list[int] | None:
        extent_values = [self._evaluate_text(extent_text, known_values) for extent_text in extents]
        positive_values = [extent for extent in extent_values if extent is not None and extent > 0]
        return positive_values if len(positive_values) == len(extent_values) else None

    def _find_unknown_names(self, text: str, outer_names: tuple[str, ...]) -> set[str]:
        names = set(re.findall(r"[A-Za-z_]\w*", text))
        unknown_names = set()
        for name in names - {"int", "unsigned", "u", "U", "UL", "ull"}:
            if name in outer_names or name not in self.constants:
                unknown_names.add(name)
            else:
                unknown_names |= self._find_unknown_names(self.constants[name], (*outer_names, name))
        return unknown_names

    def _evaluate_text(self, text: str, constants: Mapping[str, int]) -> int | None:
        """Return the value of a constant integer expression in the source, or None if it is not known."""
        try:
            plain_text = re.sub(r"(?<=\d)[uUlL]+\b", "", text).strip()
            return self._evaluate_node(ast.parse(plain_text, mode="eval").body, constants)
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
            return None

    def _evaluate_node(self, node: ast.expr, constants: Mapping[str, int]) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name):
            if node.id in constants:
                return constants[node.id]
            if node.id in self.constants:
                value = self._evaluate_text(self.constants[node.id], constants)
                if value is not None:
                    return value
        if isinstance(node, ast.BinOp):
            left = self._evaluate_node(node.left, constants)
            right = self._evaluate_node(node.right, constants)
            match node.op:
                case ast.Add():
                    return left + right
                case ast.Sub():
                    return left - right
                case ast.Mult():
                    return left * right
                case ast.Div() | ast.FloorDiv():
                    return left // right
                case ast.Mod():
                    return left % right
                case ast.LShift() if right < 64:
                    return left << right
                case ast.RShift() if right < 64:
                    return left >> right
        raise ValueError


def read_declarations(code: str) -> Declarations:
    """Return the declarations of shared, global and constant variables in CUDA C++ source."""
    clean_code = _ALIGNMENT_PATTERN.sub(" ", _COMMENT_PATTERN.sub(" ", code.replace("\\\n", " ")))
    constants = dict(_DEFINE_PATTERN.findall(clean_code))
    for declaration_text in _CONSTANTS_PATTERN.findall(clean_code):
        constants |= {
            m[1]: m[2]
            for declarator in _split_at_commas(declaration_text)
            if (m := _CONSTANT_PATTERN.search(declarator))
        }
    variables: dict[str, list[Declaration]] = {}
    for declaration_text in _DECLARATION_PATTERN.findall(clean_code):
        type_name = ""
        for position, declarator in enumerate(
            _split_at_commas(_QUALIFIER_PATTERN.sub(" ", declaration_text))
        ):
            match = _DECLARATOR_PATTERN.match(declarator if position == 0 else f" {declarator.strip()}")
            if match is None:
                continue
            if position == 0:
                type_name = " ".join(match["type"].split())
            extents = tuple(_EXTENT_PATTERN.findall(match["extents"]))
            variables.setdefault(match["name"], []).append(
                Declaration("size_t" if match["pointer"] == "*" else type_name.rstrip("* "), extents)
            )
    return Declarations(variables, constants)


def _split_at_commas(text: str) -> list[str]:
    """Split a string at the commas that are outside of brackets."""
    text_parts = [""]
    bracket_depth = 0
    for letter in text:
        bracket_depth += (letter in "[<(") - (letter in "]>)")
        if letter == "," and bracket_depth == 0:
            text_parts.append("")
        else:
            text_parts[-1] += letter
    return text_parts
