"""Code that calls what is not there is refused; linking it would end the process."""

from __future__ import annotations

import sys

import llvmlite.binding as llvm
import pytest

from virtualgpu.engine.machine import jit, object_code
from virtualgpu.errors import NotSupportedError

RUNS = """
define i32 @run_blocks(ptr %c, i64 %a, i64 %b) {{ {body} ret i32 {result} }}
define i32 @run_block(ptr %c, i64 %a, i32 %b) {{ ret i32 0 }}
"""


@pytest.mark.skipif(sys.platform != "linux", reason="object files are checked where they are ELF")
@pytest.mark.parametrize("round_", ["fresh", "from the cache"])
def test_a_missing_function_is_named(round_: str) -> None:
    text = "declare void @no_such_function()\n" + RUNS.format(body="call void @no_such_function()", result=1)
    with pytest.raises(NotSupportedError, match="no_such_function"):
        jit.KernelCode(text)


def test_functions_of_the_c_library_are_found() -> None:
    body = "%x = uitofp i64 %a to float %y = frem float %x, 7.0 %z = fptoui float %y to i32"
    code = jit.KernelCode(RUNS.format(body=body, result="%z"))
    assert code.run_blocks(None, 12, 0) == 5


def test_code_has_no_tables_for_unwinding(monkeypatch: pytest.MonkeyPatch) -> None:
    """libgcc would keep such tables after the code is freed, and the next backtrace would crash."""
    stored: list[bytes] = []
    monkeypatch.setattr(jit.disk_cache, "load_entry", lambda kind, key: None)
    monkeypatch.setattr(jit.disk_cache, "store_entry", lambda kind, key, code: stored.append(code))
    jit.KernelCode(RUNS.format(body="", result=100))
    codes, _ = object_code.unpack(stored[-1])
    assert len(codes) == 2
    for code in codes:
        sections = [section.name() or b"" for section in llvm.ObjectFileRef.from_data(code).sections()]
        assert any(name.startswith(b".text") for name in sections)
        assert not [name for name in sections if b"eh_frame" in name or b"unwind" in name]
