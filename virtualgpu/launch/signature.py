"""Reader of a kernel's parameters in its source: names for messages, element types for checks.

PTX contains only sizes: a ``float*`` and a ``double*`` are both 64-bit numbers. Types that are not
understood (templates, typedefs, macros) are left out and not checked.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

_COMMENT_PATTERN = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_LAUNCH_BOUNDS_PATTERN = re.compile(r"__launch_bounds__\s*\([^)]*\)")
_QUALIFIER_PATTERN = re.compile(r"\b(?:const|volatile|__restrict__|__restrict|__grid_constant__|restrict)\b")
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
    """A kernel parameter as written in the source. The parameter has a name, a type and, for a pointer, the
    NumPy dtype of its elements.

    ``element`` is "" if the parameter is not a pointer or its type is not a plain one.
    """

    name: str
    type_text: str
    element: str = ""


@functools.lru_cache(maxsize=512)
def parse_source_params(code: str, kernel: str) -> tuple[SourceParam, ...] | None:
    """Return a kernel's parameters as written in CUDA C++ source, or None if the kernel is not found."""
    clean_code = _COMMENT_PATTERN.sub(" ", code)
    for match in re.finditer(rf"\b{re.escape(kernel)}\s*\(", clean_code):
        preceding_text = clean_code[max(0, match.start() - 200) : match.start()]
        if "__global__" not in re.split(r"[;{}]", preceding_text)[-1]:
            continue
        parameter_text = _find_parenthesized_text(clean_code, match.end())
        if parameter_text is None:
            return None
        if parameter_text.strip() in ("", "void"):
            return ()
        return tuple(_parse_param(param_text) for param_text in _split_parameters(parameter_text))
    return None


def find_kernel_names(code: str) -> tuple[str, ...]:
    """Return the names of the ``__global__`` functions in source order."""
    clean_code = _LAUNCH_BOUNDS_PATTERN.sub(" ", _COMMENT_PATTERN.sub(" ", code))
    return tuple(dict.fromkeys(re.findall(r"__global__\s[\w\s]*?(\w+)\s*\(", clean_code)))


def _find_parenthesized_text(text: str, start: int) -> str | None:
    parenthesis_depth = 1
    for position in range(start, len(text)):
        if text[position] == "(":
            parenthesis_depth += 1
        elif text[position] == ")":
            parenthesis_depth -= 1
            if not parenthesis_depth:
                return text[start:position]
    return None


def _split_parameters(parameter_text: str) -> list[str]:
    param_texts = []
    bracket_depth = 0
    current_text = ""
    for character in parameter_text:
        if character == "," and not bracket_depth:
            param_texts.append(current_text)
            current_text = ""
            continue
        bracket_depth += (character in "<([") - (character in ">)]")
        current_text += character
    return [*param_texts, current_text]


def _parse_param(text: str) -> SourceParam:
    declaration = " ".join(_QUALIFIER_PATTERN.sub(" ", text.split("=")[0]).split())
    match = re.fullmatch(r"(.*?)\s*(\*?)\s*(\w+)\s*(\[\s*\w*\s*\])?", declaration)
    if not match or not match[1].strip():
        return SourceParam("", declaration)
    base_type = match[1].strip()
    is_pointer = bool(match[2] or match[4]) and not base_type.endswith("*")
    type_text = f"{base_type}*" if match[2] or match[4] else base_type
    return SourceParam(match[3], type_text, _ELEMENT_TYPES.get(base_type, "") if is_pointer else "")
