"""Loads and stores of matrix fragments, as LLVM IR functions that loop over elements.

Each element is an access of its own, checked, counted, traced and told to observers as any other.
"""

from __future__ import annotations

from dataclasses import dataclass

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir import checks, lanes, layout
from virtualgpu.engine.ir.text import IOTA, load_field, splat
from virtualgpu.engine.lower import fragments
from virtualgpu.engine.lower.ops import memory_ops
from virtualgpu.engine.lower.warp_code import WarpCode
from virtualgpu.records.access import Rule


@dataclass(frozen=True, slots=True)
class Move:
    """One kind of load or store.

    ``columns`` are those of a ``wmma`` matrix, of which each lane holds a run; 0 stands for
    ``ldmatrix``, where the lanes' addresses are those of rows. ``by_row``: memory holds rows one after
    the other, or for ``ldmatrix`` that it does not transpose.
    """

    access: ir.Instruction
    space: str
    kind: str
    elements: int
    registers: int
    columns: int
    by_row: bool

    @property
    def size(self) -> int:
        return ir.TYPE_BYTES[self.kind]

    @property
    def is_load(self) -> bool:
        return self.access.root == "ld"

    @property
    def address(self) -> str:
        """LLVM type of an address: shared ones are offsets."""
        return "i32" if self.space == "shared" else "i64"

    @property
    def name(self) -> str:
        what = f"wmma_{self.access.root}_{self.columns}" if self.columns else "ldmatrix"
        order = "row" if self.by_row else "column"
        return f"{what}_{order}_{self.space}_{self.kind}_{self.elements}_{self.registers}"


def call(
    c: WarpCode,
    i: ir.Instruction,
    move: Move,
    base: str,
    more: list[str],
    fragment: ir.Operand | None,
) -> None:
    """Emit the call that moves a fragment; `more` are arguments after the base address."""
    e = c.e
    site = c.site(move.access)
    if move.name not in c.tables.support:
        c.need(move.name, _function(c, move))
    registers = (fragments.target if move.is_load else fragments.given)(c, fragment, "d")
    given = [
        "ptr %ctx",
        f"<32 x {move.address}> {base}",
        *more,
        f"i32 {c.executed(i)}",
        f"i32 {c.index}",
        f"i32 {i.pc}",
        f"i32 {site}",
        f"ptr {registers}",
    ]
    c.leave_on_fault(e.op(f"call i1 @{move.name}({', '.join(given)})"))
    if move.is_load:
        fragments.written(c, fragment, registers)


def _function(c: WarpCode, move: Move) -> str:
    """Text of a function that gives true after a fault."""
    raw = f"i{8 * move.size}"
    count = move.elements if move.is_load else min(move.elements, move.registers * 4 // move.size)
    given = ["ptr %ctx", f"<32 x {move.address}> %base", *(["<32 x i32> %stride32"] if move.columns else ())]
    given += ["i32 %mask", "i32 %function", "i32 %pc", "i32 %site", "ptr %registers"]
    part = _loading(c, move, raw) if move.is_load else _storing(c, move, raw)
    return f"""
define internal i1 @{move.name}({", ".join(given)}) noinline {{
entry:
  %parts = alloca [{count} x <32 x {raw}>], align 64
  %told = alloca <32 x i64>
  %lanes = bitcast i32 %mask to <32 x i1>
  br label %loop
loop:
  %n = phi i32 [0, %entry], [%n1, %go.on]
{_place(c, move)}{_checked(c, move)}
fine:
{_told(c, move)}{part}
  br label %go.on
go.on:
  %n1 = add i32 %n, 1
  %more = icmp ult i32 %n1, {count}
  br i1 %more, label %loop, label %done
done:
{_merged(c, move, raw, count) if move.is_load else ""}  ret i1 false
fail:
  ret i1 true
}}
"""


def _place(c: WarpCode, move: Move) -> str:
    """``%a``: where element ``%n`` of each lane lies."""
    llvm = move.address
    if not move.columns:
        c.need(*lanes.permute(llvm))
        lane = f"<{', '.join(f'i32 {n}' for n in range(32))}>"
        across, inside = ("lshr", "and") if move.by_row else ("and", "lshr")
        first, second = (2, 3) if move.by_row else (3, 2)
        wide = (
            f"zext <32 x i32> %in.row to <32 x {llvm}>"
            if llvm == "i64"
            else "add <32 x i32> %in.row, zeroinitializer"
        )
        return f"""  %matrix = lshr i32 %n, 1
  %first = shl i32 %matrix, 3
{splat("i32", "%first", "%firsts")}  %half = and i32 %n, 1
{splat("i32", "%half", "%halves")}  %across0 = {across} <32 x i32> {lane}, splat (i32 {first})
  %inside0 = {inside} <32 x i32> {lane}, splat (i32 {second})
  %pair0 = shl <32 x i32> {"%inside0" if move.by_row else "%across0"}, splat (i32 1)
  %pair = or <32 x i32> %pair0, %halves
  %row = add <32 x i32> {"%across0, %firsts" if move.by_row else "%pair, %firsts"}
  %in.row = shl <32 x i32> {"%pair" if move.by_row else "%inside0"}, splat (i32 1)
  %start = call <32 x {llvm}> @permute_{llvm}(<32 x {llvm}> %base, <32 x i32> %row)
  %offset = {wide}
  %a = add <32 x {llvm}> %start, %offset
"""
    major, minor = ("row", "column") if move.by_row else ("column", "row")
    narrow = (
        "trunc <32 x i64> %bytes to <32 x i32>" if llvm == "i32" else "add <32 x i64> %bytes, zeroinitializer"
    )
    return f"""  %n64 = zext i32 %n to i64
{splat("i64", "%n64", "%ns")}  %lane.first = mul <32 x i64> {IOTA}, splat (i64 {move.elements})
  %index = add <32 x i64> %lane.first, %ns
  %row = lshr <32 x i64> %index, splat (i64 {move.columns.bit_length() - 1})
  %column = and <32 x i64> %index, splat (i64 {move.columns - 1})
  %stride = zext <32 x i32> %stride32 to <32 x i64>
  %lines = mul <32 x i64> %stride, %{major}
  %items = add <32 x i64> %lines, %{minor}
  %bytes = mul <32 x i64> %items, splat (i64 {move.size})
  %offset = {narrow}
  %a = add <32 x {llvm}> %base, %offset
"""


def _checked(c: WarpCode, move: Move) -> str:
    """Check and count an access; ``%host`` or a branch to ``fail``."""
    rule: Rule = "load" if move.is_load else "store"
    if move.space == "generic":
        name = memory_ops.resolve_generic(move.size, c, rule)
        arguments = "ptr %ctx, <32 x i64> %a, i32 %mask, i32 %function, i32 %pc, i32 %site"
        return f"""  %host = call <32 x i64> @{name}({arguments})
{load_field("fault_code", "%code")}  %failed = icmp ne i32 %code, 0
  br i1 %failed, label %fail, label %fine
"""
    check = checks.check_shared if move.space == "shared" else checks.check_global
    name, body = check(move.size, c.options.count, rule)
    c.need(name, body)
    text = (
        f"  %failed = call i1 @{name}(ptr %ctx, <32 x {move.address}> %a, i32 %mask, i32 %function, "
        "i32 %pc, i32 %site)\n"
    )
    if move.space == "shared":
        text += "  %shown = zext <32 x i32> %a to <32 x i64>\n" + load_field("shared", "%shared")
        text += splat("i64", "%shared", "%shareds") + "  %host = add <32 x i64> %shareds, %shown\n"
    else:
        text += "  %host = add <32 x i64> %a, zeroinitializer\n"
    return text + "  br i1 %failed, label %fail, label %fine\n"


def _told(c: WarpCode, move: Move) -> str:
    """What a trace or an observer is told of the access."""
    shown = "%shown" if move.space == "shared" else "%a"
    text = ""
    if c.options.trace:
        level = layout.TRACE_ALL & ~layout.TRACE_SHARED
        text += _row(shown, layout.ROW_ADDRESS, level)
    if c.options.observe:
        text += f"  store <32 x i64> {shown}, ptr %told\n" + load_field("observer", "%observer.i")
        text += "  %observer = inttoptr i64 %observer.i to ptr\n"
        text += "  call void %observer(ptr %ctx, i32 %site, ptr %told, i32 %mask, ptr null)\n"
    return text


def _row(lanes_: str, kind: int, level: int = layout.TRACE_ALL) -> str:
    return f"  call void @trace_row(ptr %ctx, <32 x i64> {lanes_}, i32 %mask, i32 {kind}, i32 {level})\n"


def _loading(c: WarpCode, move: Move, raw: str) -> str:
    c.need(*lanes.gather(raw))
    return (
        f"  %v = call <32 x {raw}> @gather_{raw}(<32 x i64> %host, i32 %mask)\n"
        f"  %to = getelementptr <32 x {raw}>, ptr %parts, i32 %n\n  store <32 x {raw}> %v, ptr %to\n"
    )


def _storing(c: WarpCode, move: Move, raw: str) -> str:
    c.need(*lanes.scatter(raw))
    if raw == "i16":
        text = f"""  %register = lshr i32 %n, 1
  %from = getelementptr <32 x i32>, ptr %registers, i32 %register
  %word = load <32 x i32>, ptr %from, align 64
  %half = and i32 %n, 1
  %shift = shl i32 %half, 4
{splat("i32", "%shift", "%shifts")}  %moved = lshr <32 x i32> %word, %shifts
  %v = trunc <32 x i32> %moved to <32 x i16>
"""
    else:
        text = (
            "  %from = getelementptr <32 x i32>, ptr %registers, i32 %n\n"
            "  %v = load <32 x i32>, ptr %from, align 64\n"
        )
    text += f"  call void @scatter_{raw}(<32 x {raw}> %v, <32 x i64> %host, i32 %mask)\n"
    if c.options.trace:
        text += f"  %bits = zext <32 x {raw}> %v to <32 x i64>\n"
        text += _row("%host", layout.ROW_PLACE) + _row("%bits", layout.ROW_WRITTEN + move.size)
    return text


def _merged(c: WarpCode, move: Move, raw: str, count: int) -> str:
    """Put the elements into registers, of which several may hold the same."""
    text = ""
    width = 8 * move.size
    per = 32 // width  # elements that a register holds, the first one lowest
    for r in range(move.registers):
        value = ""
        for n in range(per):
            piece = f"%v{r}.{n}"
            text += f"  %p{r}.{n} = getelementptr <32 x {raw}>, ptr %parts, i32 {(per * r + n) % count}\n"
            text += f"  {piece} = load <32 x {raw}>, ptr %p{r}.{n}\n"
            if per > 1:
                text += f"  %w{r}.{n} = zext <32 x {raw}> {piece} to <32 x i32>\n"
                text += f"  %h{r}.{n} = shl <32 x i32> %w{r}.{n}, splat (i32 {width * n})\n"
                piece = f"%h{r}.{n}"
            if value:
                text += f"  %r{r}.{n} = or <32 x i32> {value}, {piece}\n"
                piece = f"%r{r}.{n}"
            value = piece
        text += f"  %to{r} = getelementptr <32 x i32>, ptr %registers, i32 {r}\n"
        text += (
            f"  call void @llvm.masked.store.v32i32.p0(<32 x i32> {value}, ptr align 64 %to{r}, "
            "<32 x i1> %lanes)\n"
        )
    c.e.declared.add("declare void @llvm.masked.store.v32i32.p0(<32 x i32>, ptr, <32 x i1>)")
    return text
