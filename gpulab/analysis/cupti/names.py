"""Readable names of kernels, without their parameters."""

from __future__ import annotations

import ctypes
import functools

_MAX_LENGTH = 60


@functools.lru_cache(4096)
def shorten_kernel_name(symbol: str) -> str:
    """Return the readable name of a kernel for its symbol, such as ``axpy<float>`` for ``_Z4axpyIfEvPT_``.

    Namespaces and template arguments are omitted from long names, such as those of CUB.
    """
    full_name = demangle(symbol) if symbol.startswith("_Z") else symbol
    bracket_depth = 0
    name_end = len(full_name)
    name_start = 0
    base_name_start = 0
    template_start = len(full_name)
    for letter_index, letter in enumerate(full_name):
        if letter in "<[{" or (
            letter == "(" and (bracket_depth or _is_bracket_of_name(full_name, letter_index))
        ):
            template_start = letter_index if letter == "<" and not bracket_depth else template_start
            bracket_depth += 1
        elif letter in ">]}" or (letter == ")" and bracket_depth):
            bracket_depth -= 1
        elif letter == "(" and not bracket_depth:
            name_end = letter_index
            break
        elif letter == " " and not bracket_depth:
            name_start = base_name_start = letter_index + 1  # the text before it was the return type
        elif letter == ":" and not bracket_depth:
            base_name_start = letter_index + 1
            template_start = len(full_name)
    if name_end - name_start > _MAX_LENGTH:
        return (
            f"{full_name[base_name_start : min(template_start, name_end)]}<...>"
            if template_start < name_end
            else full_name[base_name_start:name_end]
        )
    return full_name[name_start:name_end] or symbol


def _is_bracket_of_name(name: str, index: int) -> bool:
    """Return whether the bracket at an index belongs to the name, and does not begin the parameters."""
    return name.startswith("(anonymous", index) or name.endswith("operator", 0, index)


def demangle(symbol: str) -> str:
    """Return a C++ symbol in demangled form. If this machine has no C++ library, return the symbol itself."""
    try:
        cpp_library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return symbol
    cpp_library.__cxa_demangle.restype = ctypes.c_void_p
    status = ctypes.c_int()
    address = cpp_library.__cxa_demangle(symbol.encode(), None, None, ctypes.byref(status))
    if status.value != 0 or not address:
        return symbol
    try:
        return ctypes.string_at(address).decode(errors="replace")
    finally:
        free_memory = ctypes.CDLL(None).free
        free_memory.argtypes = [ctypes.c_void_p]
        free_memory(address)
