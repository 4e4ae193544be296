"""Displayed names: kernels without their parameters, streams by number."""

from __future__ import annotations

import ctypes
import functools

_MAX_LENGTH = 60


@functools.lru_cache(4096)
def kernel_name(symbol: str) -> str:
    """Return the readable name of a kernel for its symbol, such as ``axpy<float>`` for ``_Z4axpyIfEvPT_``.

    Namespaces and template arguments are omitted from long names, such as those of CUB.
    """
    name = demangled(symbol) if symbol.startswith("_Z") else symbol
    depth = 0
    end = len(name)
    start = 0
    base_start = 0
    template_start = len(name)
    for index, letter in enumerate(name):
        if letter in "<[{" or (letter == "(" and (depth or _is_bracket_of_name(name, index))):
            template_start = index if letter == "<" and not depth else template_start
            depth += 1
        elif letter in ">]}" or (letter == ")" and depth):
            depth -= 1
        elif letter == "(" and not depth:
            end = index
            break
        elif letter == " " and not depth:
            start = base_start = index + 1  # the text before it was the return type
        elif letter == ":" and not depth:
            base_start = index + 1
            template_start = len(name)
    if end - start > _MAX_LENGTH:
        return (
            f"{name[base_start : min(template_start, end)]}<...>"
            if template_start < end
            else name[base_start:end]
        )
    return name[start:end] or symbol


def _is_bracket_of_name(name: str, index: int) -> bool:
    """Return whether the bracket at an index belongs to the name, and does not begin the parameters."""
    return name.startswith("(anonymous", index) or name.endswith("operator", 0, index)


def demangled(symbol: str) -> str:
    """Return a C++ symbol in demangled form. If this machine has no C++ library, return the symbol itself."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return symbol
    library.__cxa_demangle.restype = ctypes.c_void_p
    status = ctypes.c_int()
    address = library.__cxa_demangle(symbol.encode(), None, None, ctypes.byref(status))
    if status.value != 0 or not address:
        return symbol
    try:
        return ctypes.string_at(address).decode(errors="replace")
    finally:
        free = ctypes.CDLL(None).free
        free.argtypes = [ctypes.c_void_p]
        free(address)
