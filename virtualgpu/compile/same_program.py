"""Whether two sources of a kernel are the same program, however they are written down."""

from __future__ import annotations

import re

from virtualgpu.compile import nvrtc
from virtualgpu.compile.ptx.parser import parse
from virtualgpu.compile.shipped import TARGETS, plain
from virtualgpu.errors import GpulabError
from virtualgpu.records import KernelSource

# Any target does; for one of these the course's kernels are there without a compiler.
_TARGET = TARGETS[-1]


def same_program(one: KernelSource, other: KernelSource) -> bool:
    """Whether two kernels differ in comments, spaces, names and the like only.

    Either their texts are the same but for comments and spaces, or the compiler makes the same instructions
    of them. Where it is missing, or refuses one of them, the texts decide.
    """
    if (one.name, one.options) == (other.name, other.options) and _tokens(one.code) == _tokens(other.code):
        return True
    try:
        return _instructions(one) == _instructions(other)
    except (GpulabError, KeyError):  # KeyError: a template, whose name in PTX is another
        return False


def _tokens(code: str) -> str:
    # Between two words a space counts, elsewhere none does.
    return re.sub(r"(?<!\w) | (?!\w)", "", " ".join(plain(code).split()))


def _instructions(source: KernelSource) -> list[str]:
    """What the compiler makes of a kernel and of the functions it may call, its own name taken out."""
    options = (*source.options, *nvrtc.CUPY_OPTIONS)
    module = parse(nvrtc.compile_ptx(source.code, target=_TARGET, options=options).ptx)
    functions = [module.functions[source.name], *(f for f in module.functions.values() if not f.is_entry)]
    return [i.text.replace(f"[{source.name}_param", "[param") for f in functions for i in f.instructions]
