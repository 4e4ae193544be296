"""Comparison of two kernel sources that differ as text but may be the same program."""

from __future__ import annotations

import re

from virtualgpu.compile import nvrtc
from virtualgpu.compile.ptx.parser import parse
from virtualgpu.compile.shipped import TARGETS, remove_comments
from virtualgpu.errors import GpulabError
from virtualgpu.records import KernelSource

# Any target works; for this one the course's kernels are available without a compiler.
_TARGET = TARGETS[-1]


def is_same_program(first_code: KernelSource, second_code: KernelSource) -> bool:
    """Return whether two kernels differ only in comments, spaces, names and other details without an effect.

    The texts must be equal except for comments and spaces, or both kernels must compile to the same
    instructions. If the compiler is missing, or rejects one of them, the texts decide.
    """
    if (first_code.name, first_code.options) == (second_code.name, second_code.options) and _strip_comments(
        first_code.code
    ) == _strip_comments(second_code.code):
        return True
    try:
        return _compile_instructions(first_code) == _compile_instructions(second_code)
    except (GpulabError, KeyError):  # KeyError: a template, whose name in PTX is another
        return False


def _strip_comments(code: str) -> str:
    # A space matters only between two words.
    return re.sub(r"(?<!\w) | (?!\w)", "", " ".join(remove_comments(code).split()))


def _compile_instructions(source: KernelSource) -> list[str]:
    """Return the instructions of a kernel and of the functions it may call, without its own name."""
    options = (*source.options, *nvrtc.CUPY_OPTIONS)
    module = parse(nvrtc.compile_ptx(source.code, target=_TARGET, options=options).ptx)
    functions = [module.functions[source.name], *(f for f in module.functions.values() if not f.is_entry)]
    return [
        instruction.text.replace(f"[{source.name}_param", "[param")
        for f in functions
        for instruction in f.instructions
    ]
