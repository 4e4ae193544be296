"""Elements as the source names them, such as ``tile[2][0]``, from its declarations of arrays.

PTX knows an array by its bytes only. The declaration says its shape and type; where it needs a value that
the source does not give (a template's parameter, a macro from the command line), the array's size does.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(.+?)[ \t]*$", re.M)
_CONSTANTS = re.compile(r"\bconst(?:expr)?\s+([^;(){}]+);")
_CONSTANT = re.compile(r"(\w+)\s*=\s*(.+)$", re.S)
_DECLARED = re.compile(
    r"\b__(?:shared|device|constant|managed)__\s+((?:[^;(){}=\[\]]|\[[^;{}\]]*\])+?)\s*[;={]"
)
_DECLARATOR = re.compile(
    r"^(?P<type>.*?)(?P<pointer>[*\s])\s*(?P<name>\w+)\s*(?P<extents>(?:\[[^\]]*\]\s*)*)$", re.S
)
_ALIGNED = re.compile(r"\b(?:__align__|alignas)\s*\([^()]*(?:\([^()]*\))?[^()]*\)")
_NOISE = re.compile(
    r"\b(?:volatile|const|static|extern|struct|unsigned|"
    r"signed|__shared__|__device__|__constant__|__restrict__)\b"
)
_EXTENT = re.compile(r"\[([^\]]*)\]")
_BYTES = {
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
_MOST = 65_536  # tried for a value that the source does not give


@dataclass(frozen=True, slots=True)
class Declaration:
    """A variable as the source declares it: its type, and what stands between its brackets."""

    type: str
    extents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Declarations:
    """The variables of a source outside registers, and the constants that it defines."""

    variables: Mapping[str, Sequence[Declaration]]
    constants: Mapping[str, str]

    def element(self, name: str, offset: int, size_bytes: int) -> str:
        """The element at a byte of a variable; empty where the declaration does not say.

        Parameters
        ----------
        name
            The variable's name in the source.
        offset
            Byte in it.
        size_bytes
            Of the variable; 0 where the launch says how large it is.
        """
        spelled = {
            self._element(name, declared, offset, size_bytes) for declared in self.variables.get(name, ())
        } - {""}
        return spelled.pop() if len(spelled) == 1 else ""

    def _element(self, name: str, declared: Declaration, offset: int, size_bytes: int) -> str:
        unit = _BYTES.get(declared.type, 0)
        shape = self._shape(declared.extents, size_bytes // unit if unit and size_bytes else 0)
        if shape is None:
            return ""
        if size_bytes:
            count = math.prod(shape)
            if size_bytes % count or (unit and unit * count != size_bytes):
                return ""
            unit = size_bytes // count
        if not unit:
            return ""
        number, rest = divmod(offset, unit)
        indices = []
        for extent in reversed(shape[1:]):
            number, index = divmod(number, extent)
            indices.append(index)
        indices = [number, *reversed(indices)] if shape else []
        spelled = name + "".join(f"[{index}]" for index in indices)
        part = re.fullmatch(r"[a-z]+([234])", declared.type)
        if part and not rest % (unit // int(part[1])):
            return f"{spelled}.{'xyzw'[rest // (unit // int(part[1]))]}"
        return f"byte {rest} of {spelled}" if rest else spelled

    def _shape(self, extents: Sequence[str], count: int) -> list[int] | None:
        """Values of extents. One name that the source does not give stands for what makes up the count."""
        if extents and not extents[0].strip():  # all that there is
            inner = self._shape(extents[1:], 0)
            if inner is None:
                return None
            return [max(count // math.prod(inner), 1), *inner]
        missing = {name for text in extents for name in self._unknown(text, ())}
        if not missing:
            return self._values(extents, {})
        if len(missing) > 1 or not count:
            return None
        (name,) = missing
        for value in range(1, min(count, _MOST) + 1):
            shape = self._values(extents, {name: value})
            if shape is None or math.prod(shape) > count:
                return None
            if math.prod(shape) == count:
                return shape
        return None

    def _values(self, extents: Sequence[str], known: Mapping[str, int]) -> list[int] | None:
        values = [self._value(text, known) for text in extents]
        found = [value for value in values if value is not None and value > 0]
        return found if len(found) == len(values) else None

    def _unknown(self, text: str, above: tuple[str, ...]) -> set[str]:
        names = set(re.findall(r"[A-Za-z_]\w*", text))
        found = set()
        for name in names - {"int", "unsigned", "u", "U", "UL", "ull"}:
            if name in above or name not in self.constants:
                found.add(name)
            else:
                found |= self._unknown(self.constants[name], (*above, name))
        return found

    def _value(self, text: str, known: Mapping[str, int]) -> int | None:
        """What a constant expression of integers comes to."""
        try:
            plain = re.sub(r"(?<=\d)[uUlL]+\b", "", text).strip()
            return self._evaluated(ast.parse(plain, mode="eval").body, known)
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
            return None

    def _evaluated(self, node: ast.expr, known: Mapping[str, int]) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name):
            if node.id in known:
                return known[node.id]
            if node.id in self.constants:
                value = self._value(self.constants[node.id], known)
                if value is not None:
                    return value
        if isinstance(node, ast.BinOp):
            left, right = (self._evaluated(side, known) for side in (node.left, node.right))
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


def declarations(code: str) -> Declarations:
    """What a CUDA C++ source declares in shared, global and constant memory."""
    text = _ALIGNED.sub(" ", _COMMENT.sub(" ", code.replace("\\\n", " ")))
    constants = dict(_DEFINE.findall(text))
    for group in _CONSTANTS.findall(text):
        constants |= {m[1]: m[2] for part in _split(group) if (m := _CONSTANT.search(part))}
    found: dict[str, list[Declaration]] = {}
    for group in _DECLARED.findall(text):
        kind = ""
        for n, part in enumerate(_split(_NOISE.sub(" ", group))):
            match = _DECLARATOR.match(part if n == 0 else f" {part.strip()}")
            if match is None:
                continue
            if n == 0:
                kind = " ".join(match["type"].split())
            extents = tuple(_EXTENT.findall(match["extents"]))
            found.setdefault(match["name"], []).append(
                Declaration("size_t" if match["pointer"] == "*" else kind.rstrip("* "), extents)
            )
    return Declarations(found, constants)


def _split(text: str) -> list[str]:
    """Parts between commas that stand in no brackets."""
    parts = [""]
    depth = 0
    for letter in text:
        depth += (letter in "[<(") - (letter in "]>)")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
