"""Bulk copies inside a block as LLVM IR functions: each lane copies a run of bytes of its own.

A run is read, checked and counted 32 pieces of 16 bytes at a time. An observer is told of one piece at a
time, as an access of the lane that copies it.
"""

from __future__ import annotations

from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.text import IOTA, field, load_field, splat

PIECE_BYTES = 16
_WORDS = PIECE_BYTES // 4
_GIVEN = (
    "ptr %ctx, <32 x i64> %to, <32 x i64> %from, <32 x i64> %sizes, <32 x i64> %bars, i32 %mask, "
    "i32 %function, i32 %pc, i32 %load, i32 %store"
)


def _observer(site: str, places: str) -> str:
    return (
        f"  store <32 x i64> {places}, ptr %told\n"
        f"  call void %observer(ptr %ctx, i32 {site}, ptr %told, i32 %piece.mask, ptr null)\n"
    )


def bulk_copy(
    name: str,
    to_shared: bool,
    observe: bool,
    checked: tuple[str, str],
    begin: str = "",
    complete: str = "",
) -> str:
    """Text of ``i1 @name(ctx, to, from, sizes, barriers, mask, function, pc, load, store)``.

    It gives true after a fault. Shared addresses are offsets, in i64 as all are here.

    Parameters
    ----------
    name
        Of the function.
    to_shared
        Whether it copies to shared memory, or from there to global memory.
    observe
        Whether an observer is told.
    checked
        Functions that check and count what is read and what is written.
    begin
        Function that keeps a copy until an mbarrier's phase is over (`copy_queue.begin`).
    complete
        Function that counts what an mbarrier expects (``mbarrier_update``).
    """
    source, target = ("global", "shared") if to_shared else ("shared", "global")
    words = "".join(
        f"""  %at{n} = add <32 x i64> %source, splat (i64 {4 * n})
  %word{n} = call <32 x i32> @gather_i32(<32 x i64> %at{n}, i32 %piece.mask)
"""
        for n in range(_WORDS)
    )
    if to_shared:
        words += "".join(
            f"  %row{n} = getelementptr i8, ptr %words, i64 {128 * n}\n"
            f"  store <32 x i32> %word{n}, ptr %row{n}, align 64\n"
            for n in range(_WORDS)
        )
        words += (
            f"  call void @{begin}(ptr %ctx, <32 x i64> %target, i32 %piece.mask, ptr %words, i32 {_WORDS}, "
            "i32 %store, i64 %bar)\n"
        )
        over = (
            "  %negative = sub i64 0, %bytes\n"
            + splat("i64", "%bar", "%bar.v")
            + splat("i64", "%negative", "%done.v")
            + f"  %state = call <32 x i64> @{complete}(ptr %ctx, <32 x i64> %bar.v, i32 %own, "
            "<32 x i64> zeroinitializer, i64 0, <32 x i64> %done.v)\n"
        )
    else:
        words += "".join(
            f"""  %to{n} = add <32 x i64> %target, splat (i64 {4 * n})
  call void @scatter_i32(<32 x i32> %word{n}, <32 x i64> %to{n}, i32 %piece.mask)
"""
            for n in range(_WORDS)
        )
        over = ""
    host = load_field("shared", "%shared") + splat("i64", "%shared", "%shared.v")
    for space, what in ((source, "source"), (target, "target")):
        base = "%shared.v" if space == "shared" else "zeroinitializer"
        host += f"  %{what} = add <32 x i64> %{what}.p, {base}\n"
    checks = ""
    where = "i32 %function, i32 %pc"
    for space, what, called, site in (
        (source, "source", checked[0], "load"),
        (target, "target", checked[1], "store"),
    ):
        kind = "<32 x i64>"
        place = f"%{what}.a"
        if space == "shared":
            kind = "<32 x i32>"
            place = f"%{what}.s"
            checks += f"  {place} = trunc <32 x i64> %{what}.a to <32 x i32>\n"
        checks += f"""  %{what}.bad = call i1 @{called}(ptr %ctx, {kind} {place}, i32 %all, {where}, i32 %{site})
  br i1 %{what}.bad, label %fail, label %{what}.fine
{what}.fine:
"""
    told = ""
    onward = "  br label %moved\n"
    chosen = "  %piece.mask = add i32 %all, 0\n" + "".join(
        f"  %{what}.p = add <32 x i64> %{what}.a, zeroinitializer\n" for what in ("source", "target")
    )
    if observe:
        chosen = """  br label %piece
piece:
  %j = phi i32 [0, %target.fine], [%j1, %piece]
  %piece.mask = add i32 %own, 0
"""
        for what in ("source", "target"):
            chosen += f"  %{what}.j = extractelement <32 x i64> %{what}.a, i32 %j\n"
            chosen += splat("i64", f"%{what}.j", f"%{what}.p")
        onward = """  %j1 = add i32 %j, 1
  %again = icmp ult i32 %j1, %now
  br i1 %again, label %piece, label %moved
"""
        told = load_field("observer", "%observer.i") + "  %observer = inttoptr i64 %observer.i to ptr\n"
        told += _observer("%load", "%source.p") + _observer("%store", "%target.p")
    return f"""
declare i32 @llvm.umin.i32(i32, i32)
define internal i1 @{name}({_GIVEN}) noinline {{
entry:
  %tos = alloca <32 x i64>
  %froms = alloca <32 x i64>
  %counts = alloca <32 x i64>
  %barriers = alloca <32 x i64>
  %told = alloca <32 x i64>
  %words = alloca [{_WORDS} x <32 x i32>], align 64
  store <32 x i64> %to, ptr %tos
  store <32 x i64> %from, ptr %froms
  store <32 x i64> %sizes, ptr %counts
  store <32 x i64> %bars, ptr %barriers
  br label %lanes
lanes:
  %rest = phi i32 [%mask, %entry], [%rest1, %over]
  %none = icmp eq i32 %rest, 0
  br i1 %none, label %done, label %lane
lane:
  %l = call i32 @llvm.cttz.i32(i32 %rest, i1 false)
  %own = shl i32 1, %l
  %minus = sub i32 %rest, 1
  %rest1 = and i32 %rest, %minus
  %to.p = getelementptr i64, ptr %tos, i32 %l
  %to.l = load i64, ptr %to.p
  %from.p = getelementptr i64, ptr %froms, i32 %l
  %from.l = load i64, ptr %from.p
  %bytes.p = getelementptr i64, ptr %counts, i32 %l
  %bytes = load i64, ptr %bytes.p
  %bar.p = getelementptr i64, ptr %barriers, i32 %l
  %bar = load i64, ptr %bar.p
  %odd = and i64 %bytes, {PIECE_BYTES - 1}
  %is.odd = icmp ne i64 %odd, 0
  br i1 %is.odd, label %uneven, label %begin
uneven:
  call void @fault(ptr %ctx, i32 {layout.MISALIGNED}, {where}, i32 %l, i32 {PIECE_BYTES}, i64 %bytes)
  ret i1 true
begin:
  %pieces64 = lshr i64 %bytes, 4
  %pieces = trunc i64 %pieces64 to i32
  br label %loop
loop:
  %n = phi i32 [0, %begin], [%n1, %moved]
  %more = icmp ult i32 %n, %pieces
  br i1 %more, label %move, label %over
move:
  %left = sub i32 %pieces, %n
  %now = call i32 @llvm.umin.i32(i32 %left, i32 32)
  %unused = sub i32 32, %now
  %all = lshr i32 -1, %unused
  %n64 = zext i32 %n to i64
  %offset = shl i64 %n64, 4
  %to.n = add i64 %to.l, %offset
  %from.n = add i64 %from.l, %offset
{splat("i64", "%to.n", "%to.v")}{splat("i64", "%from.n", "%from.v")}  %across = shl <32 x i64> {IOTA}, splat (i64 4)
  %target.a = add <32 x i64> %to.v, %across
  %source.a = add <32 x i64> %from.v, %across
{checks}{chosen}{told}{host}{words}{onward}moved:
  %n1 = add i32 %n, 32
  br label %loop
over:
{over}  br label %lanes
fail:
{field("fault_lane", "%fault.p")}  store i32 %l, ptr %fault.p
  ret i1 true
done:
  ret i1 false
}}
"""
