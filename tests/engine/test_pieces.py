"""Kernels translated in pieces: each function once, and linked to the same as in one piece."""

from __future__ import annotations

from collections import Counter

import pytest

from virtualgpu.engine.machine import jit, object_code, pieces, processor

KERNEL = """
declare i32 @llvm.ctpop.i32(i32)
declare i32 @llvm.bswap.i32(i32)
@table = internal constant [2 x i32] [i32 40, i32 2]
define internal i32 @never(i32 %a) noinline {
  ret i32 %a
}
define internal i32 @bits(i32 %a) noinline {
  %n = call i32 @llvm.ctpop.i32(i32 %a)
  ret i32 %n
}
define internal i32 @entry(i32 %at) noinline {
  %n = call i32 @bits(i32 %at)
  %p = getelementptr i32, ptr @table, i32 %n
  %v = load i32, ptr %p
  ret i32 %v
}
define internal i32 @warp_1(i32 %at) noinline {
  %v = call i32 @entry(i32 %at)
  ret i32 %v
}
define internal i32 @warp_0(ptr noalias %ctx, i32 %b) {
  %v = call i32 @warp_1(i32 %b)
  %w = add i32 %v, ADDED
  ret i32 %w
}
define i32 @run_block(ptr %ctx, i64 %a, i32 %b) {
  %v = call i32 @warp_0(ptr %ctx, i32 %b)
  ret i32 %v
}
define i32 @run_blocks(ptr %ctx, i64 %a, i64 %b) { ret i32 7 }"""


def kernel(added: int) -> str:
    return KERNEL.replace("ADDED", str(added))


def defined(piece: pieces.CodePiece) -> list[str]:
    lines = [line for line in piece.text.split("\n") if line.startswith("define")]
    return [pieces.make_declaration(line)[0] for line in lines]


def test_functions_follow_their_callees_and_unused_are_dropped() -> None:
    parts = pieces.split_by_sharing(kernel(0))
    assert [defined(piece) for piece in parts] == [
        ["run_blocks"],
        ["bits"],
        ["entry"],
        ["warp_1", "warp_0"],
        ["run_block"],
    ]
    assert [piece.is_shared for piece in parts] == [True, True, True, False, True]


def test_a_piece_declares_only_the_symbols_that_it_uses() -> None:
    text = pieces.split_by_sharing(kernel(0))[2].text
    assert text.split("\n")[:3] == [
        "declare i32 @bits(i32)",
        "@table = internal constant [2 x i32] [i32 40, i32 2]",
        "define i32 @entry(i32 %at) noinline {",
    ]
    assert "ctpop" not in text
    assert "bswap" not in text


def test_mutually_recursive_functions_appear_once() -> None:
    text = "\n".join(
        f"define internal void @{name}() noinline {{\n  call void @{other}()\n  ret void\n}}"
        for name, other in (("ping", "pong"), ("pong", "ping"))
    )
    parts = pieces.split_by_sharing(text, ("ping",))
    assert sorted(name for piece in parts for name in defined(piece)) == ["ping", "pong"]


def test_linked_pieces_have_the_results_of_the_whole_kernel() -> None:
    first = jit.KernelCode(kernel(0))
    second = jit.KernelCode(kernel(100))
    for bits in (0, 1, 8):
        known = [40, 2][bits.bit_count()]
        assert first.run_block(None, 0, bits) == known
        assert second.run_block(None, 0, bits) == known + 100
    assert first.run_blocks(None, 0, 0) == 7


def test_shared_pieces_are_translated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    translations: Counter[str] = Counter()
    known = jit._compile_module

    def generated(text: str, target_processor: processor.Processor, effort: jit.Effort) -> bytes:
        translations[text] += 1
        return known(text, target_processor, effort)

    store: dict[str, bytes] = {}
    monkeypatch.setattr(jit, "_compile_module", generated)
    monkeypatch.setattr(jit.disk_cache, "load_entry", lambda kind, key: store.get(key))
    monkeypatch.setattr(jit.disk_cache, "store_entry", lambda kind, key, code: store.update({key: code}))
    jit._load_shared_code.cache_clear()
    jit.KernelCode(kernel(1))
    assert len(translations) == 5
    jit._load_shared_code.cache_clear()  # another process, with the same folder
    jit.KernelCode(kernel(2))
    assert len(translations) == 6
    assert set(translations.values()) == {1}
    jit.KernelCode(kernel(1))
    assert len(translations) == 6
    assert set(translations.values()) == {1}


def test_a_cache_entry_lists_its_external_functions() -> None:
    def parts(text: str) -> bytes:
        return jit._compile_module(text, processor.find_chosen_processor(), "usual")

    caller = parts("declare void @callee()\ndefine void @caller() { call void @callee() ret void }")
    callee = parts("declare void @gone()\ndefine void @callee() { call void @gone() ret void }")
    data = object_code.pack([callee, caller])
    codes, needs = object_code.unpack(data)
    assert codes == [callee, caller]
    if object_code.read_symbols(caller)[0]:  # where object files are ELF
        assert needs == ["gone"]
        assert object_code.unpack(object_code.pack([caller]))[1] == ["callee"]
