"""Names as they are displayed: kernels without their parameters, streams by number."""

from __future__ import annotations

import ctypes
import functools

_LONG = 60


@functools.lru_cache(4096)
def kernel_name(symbol: str) -> str:
    """A kernel's name from its symbol: ``_Z4axpyIfEvPT_`` is ``axpy<float>``.

    Of a long one, such as CUB's, neither namespaces nor template arguments are told.
    """
    name = demangled(symbol) if symbol.startswith("_Z") else symbol
    depth = 0
    end = len(name)
    start = 0
    last = 0
    open_at = len(name)
    for at, letter in enumerate(name):
        if letter in "<[{" or (letter == "(" and (depth or _is_part(name, at))):
            open_at = at if letter == "<" and not depth else open_at
            depth += 1
        elif letter in ">]}" or (letter == ")" and depth):
            depth -= 1
        elif letter == "(" and not depth:
            end = at
            break
        elif letter == " " and not depth:
            start = last = at + 1  # the text before it was the return type
        elif letter == ":" and not depth:
            last = at + 1
            open_at = len(name)
    if end - start > _LONG:
        return f"{name[last : min(open_at, end)]}<...>" if open_at < end else name[last:end]
    return name[start:end] or symbol


def _is_part(name: str, at: int) -> bool:
    """Return whether a bracket belongs to the name, and does not begin the parameters."""
    return name.startswith("(anonymous", at) or name.endswith("operator", 0, at)


def demangled(symbol: str) -> str:
    """Return a demangled C++ symbol, or the symbol itself if this machine has no C++ library."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return symbol
    library.__cxa_demangle.restype = ctypes.c_void_p
    status = ctypes.c_int()
    found = library.__cxa_demangle(symbol.encode(), None, None, ctypes.byref(status))
    if status.value != 0 or not found:
        return symbol
    try:
        return ctypes.string_at(found).decode(errors="replace")
    finally:
        free = ctypes.CDLL(None).free
        free.argtypes = [ctypes.c_void_p]
        free(found)
