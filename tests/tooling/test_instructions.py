"""The engine accepts exactly the instructions in its list."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.every_instruction import FAMILIES, kernel
from tools.instructions import list_instructions
from virtualgpu.compile.ptx import parser
from virtualgpu.engine.lower import codegen, function
from virtualgpu.engine.lower.ops import arith, bitops
from virtualgpu.errors import NotSupportedError

LISTED = set().union(*function.list_supported_roots().values())


def test_instructions_of_every_family_are_listed() -> None:
    used = {
        i.root
        for lines in FAMILIES.values()
        for function_ in parser.parse(kernel(lines)).functions.values()
        for i in function_.instructions
    }
    assert len(used) > 60
    assert used <= LISTED


def test_listed_instructions_are_printed() -> None:
    words = {word for line in list_instructions().splitlines() for word in line[15:].split()}
    assert words == LISTED
    assert {"fma", "vabsdiff4", "mma", "tex", "bra"} <= words
    assert not {"tld4", "sured", "wgmma", "tcgen05"} & words


@pytest.mark.parametrize(("room", "line"), [(arith, "fma.rn.f32 f, f, f, f"), (bitops, "popc.b32 r, r")])
def test_unlisted_instructions_are_refused(room: Any, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an instruction could work but be missing from the list."""
    module = parser.parse(kernel([line]))
    codegen.generate_kernel(module, "k", with_counters=False, with_trace=False)
    opcode = line.partition(" ")[0]
    monkeypatch.setattr(room, "ROOTS", room.ROOTS - {opcode.partition(".")[0]})
    with pytest.raises(NotSupportedError, match=f"does not support {opcode}"):
        codegen.generate_kernel(module, "k", with_counters=False, with_trace=False)
