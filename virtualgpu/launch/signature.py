"""A kernel's parameters as its source spells them: names for messages, element types for checks.

PTX only knows sizes: a ``float*`` and a ``double*`` are both 64-bit numbers there. What is not
understood (templates, typedefs, macros) is left out, and then nothing is checked.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_LAUNCH_BOUNDS = re.compile(r"__launch_bounds__\s*\([^)]*\)")
_QUALIFIER = re.compile(r"\b(?:const|volatile|__restrict__|__restrict|__grid_constant__|restrict)\b")
_ELEMENT_TYPES = {
    "float": "float32",
    "double": "float64",
    "int": "int32",
    "signed": "int32",
    "signed int": "int32",
    "int32_t": "int32",
    "unsigned": "uint32",
    "unsigned int": "uint32",
    "uint32_t": "uint32",
    "short": "int16",
    "short int": "int16",
    "unsigned short": "uint16",
    "long long": "int64",
    "long long int": "int64",
    "int64_t": "int64",
    "unsigned long long": "uint64",
    "unsigned long long int": "uint64",
    "uint64_t": "uint64",
    "size_t": "uint64",
    "__half": "float16",
    "half": "float16",
}


@dataclass(frozen=True, slots=True)
class SourceParam:
    """One parameter: its name, its type as written, and the NumPy dtype that a pointer's elements
    (``element``) have, "" where the parameter is no pointer or its type is not a plain one."""

    name: str
    type_text: str
    element: str = ""


@functools.lru_cache(maxsize=512)
def source_params(code: str, kernel: str) -> tuple[SourceParam, ...] | None:
    """Parameters of a kernel in CUDA C++ source, None if its definition cannot be made out."""
    text = _COMMENT.sub(" ", code)
    for match in re.finditer(rf"\b{re.escape(kernel)}\s*\(", text):
        before = text[max(0, match.start() - 200) : match.start()]
        if "__global__" not in re.split(r"[;{}]", before)[-1]:
            continue
        inside = _until_closed(text, match.end())
        if inside is None:
            return None
        if inside.strip() in ("", "void"):
            return ()
        return tuple(_param(part) for part in _split(inside))
    return None


def kernel_names(code: str) -> tuple[str, ...]:
    """Names that follow ``__global__ ... (`` in the source, in order."""
    text = _LAUNCH_BOUNDS.sub(" ", _COMMENT.sub(" ", code))
    return tuple(dict.fromkeys(re.findall(r"__global__\s[\w\s]*?(\w+)\s*\(", text)))


def _until_closed(text: str, start: int) -> str | None:
    depth = 1
    for position in range(start, len(text)):
        if text[position] == "(":
            depth += 1
        elif text[position] == ")":
            depth -= 1
            if not depth:
                return text[start:position]
    return None


def _split(inside: str) -> list[str]:
    parts = []
    depth = 0
    current = ""
    for character in inside:
        if character == "," and not depth:
            parts.append(current)
            current = ""
            continue
        depth += (character in "<([") - (character in ">)]")
        current += character
    return [*parts, current]


def _param(text: str) -> SourceParam:
    declaration = " ".join(_QUALIFIER.sub(" ", text.split("=")[0]).split())
    match = re.fullmatch(r"(.*?)\s*(\*?)\s*(\w+)\s*(\[\s*\w*\s*\])?", declaration)
    if not match or not match[1].strip():
        return SourceParam("", declaration)
    base = match[1].strip()
    pointer = bool(match[2] or match[4]) and not base.endswith("*")
    written = f"{base}*" if match[2] or match[4] else base
    return SourceParam(match[3], written, _ELEMENT_TYPES.get(base, "") if pointer else "")
