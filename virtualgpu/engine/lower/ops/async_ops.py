"""Asynchronous copies, which arrive when their thread waits for them, and ``mbarrier``."""

from __future__ import annotations

import dataclasses

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir.emit import constant
from virtualgpu.engine.lower import copy_queue
from virtualgpu.engine.lower.ops import memory_ops
from virtualgpu.engine.lower.warp_code import WarpCode
from virtualgpu.errors import NotSupportedError, PtxError

# An mbarrier's 64 bits: pending arrivals, expected arrivals, completed phases.
_FIELD = (1 << 20) - 1
# Marks the store of a copy, whose data arrive later, among the parts of its opcode.
COPYING = "async"


def emit(c: WarpCode, i: ir.Instruction) -> bool:
    """Emit ``cp.async`` or ``mbarrier``; False if the instruction is neither."""
    if i.root == "cp" and i.parts[1] == "async":
        _copy(c, i)
    elif i.root == "mbarrier":
        _mbarrier(c, i)
    else:
        return False
    return True


def _copy(c: WarpCode, i: ir.Instruction) -> None:
    """``cp.async``: global to shared, 4, 8 or 16 bytes a lane; the rest is zeroed."""
    e, mask = c.e, c.executed(i)
    c.tables.copies += 1
    if i.parts[2] == "commit_group":
        e.raw(f"call void @{copy_queue.commit(c)}(ptr %ctx, i32 {mask})")
        return
    if i.parts[2] in ("wait_group", "wait_all"):
        count = i.operands[0] if i.operands else None
        if i.parts[2] == "wait_all":
            e.raw(f"call void @{copy_queue.commit(c)}(ptr %ctx, i32 {mask})")
        elif not isinstance(count, ir.Immediate):
            raise PtxError(f"{i.text!r} (line {i.line}) names no number of groups.")
        left = count.value if isinstance(count, ir.Immediate) else 0
        e.raw(f"call void @{copy_queue.wait(c)}(ptr %ctx, i32 {mask}, i32 {left & 0x7FFFFFFF})")
        return
    if "bulk" in i.parts:
        raise NotSupportedError(f"The virtual GPU does not do {i.opcode}; copy with plain loads and stores.")
    if "mbarrier" in i.parts:
        _arrive_after_copies(c, i)
        return
    size_operand = i.operands[2]
    assert isinstance(size_operand, ir.Immediate)
    size = size_operand.value
    if size not in (4, 8, 16):
        raise PtxError(f"{i.text!r} (line {i.line}) copies {size} bytes; 4, 8 and 16 are possible.")
    to = memory_ops.address_of(c, i.operands[0], "shared")
    source = memory_ops.address_of(c, i.operands[1], "global")
    from_host = memory_ops.host_addresses(
        c, memory_ops.as_access(i, "ld", "global", size), source, "global", size
    )
    store = memory_ops.as_access(i, "st", "shared", size)
    store = dataclasses.replace(store, parts=("st", COPYING, *store.parts[1:]))
    to_host = memory_ops.host_addresses(c, store, to, "shared", size)
    site = len(c.tables.accesses) - 1
    taken = i.operands[3] if len(i.operands) > 3 else None
    limit = c.get(taken, "u32") if isinstance(taken, ir.Register | ir.Immediate) else None
    words = "%copied.words"
    line = f"  {words} = alloca [4 x <32 x i32>], align 64"
    if line not in c.allocas:
        c.allocas.append(line)
    for at in range(0, size, 4):
        place = e.binary("add", "i64", from_host, constant("i64", at))
        word = memory_ops.gather(c, place, mask, "b32")
        if limit is not None:
            inside = e.compare("ugt", "i32", limit, constant("i32", at))
            word = e.select("i32", inside, word, constant("i32", 0))
        row = e.op(f"getelementptr i8, ptr {words}, i64 {32 * at}")
        e.raw(f"store <32 x i32> {word}, ptr {row}, align 64")
    e.raw(
        f"call void @{copy_queue.begin(c)}(ptr %ctx, <32 x i64> {to_host}, i32 {mask}, ptr {words}, "
        f"i32 {size // 4}, i32 {site})"
    )


def _arrive_after_copies(c: WarpCode, i: ir.Instruction) -> None:
    """``cp.async.mbarrier.arrive``: copies complete with the barrier's phase; ``.noinc`` lanes arrive.

    Without it the barrier expects one arrival more, so that nothing changes.
    """
    mask, space = c.executed(i), memory_ops.space_of(i)

    def bind(host: str) -> None:
        c.e.raw(f"call void @{copy_queue.bind(c)}(ptr %ctx, i32 {mask}, <32 x i64> {host})")

    address = memory_ops.address_of(c, i.operands[0], space)
    access = memory_ops.as_access(i, "atom", space, 8)
    host = memory_ops.host_addresses(c, access, address, space, 8, before=bind)
    if "noinc" in i.parts:
        _arrived(c, host, mask, constant("i64", 1), drop=False)


_GIVEN = "ptr %ctx, <32 x i64> %a, i32 %mask, <32 x i64> %count, i64 %drop"
_ARRIVE = """
define internal <32 x i64> @mbarrier_arrive(GIVEN) noinline {
entry:
  %as = alloca <32 x i64>
  %cs = alloca <32 x i64>
  %os = alloca <32 x i64>
  store <32 x i64> %a, ptr %as
  store <32 x i64> %count, ptr %cs
  store <32 x i64> zeroinitializer, ptr %os
  br label %loop
loop:
  %rest = phi i32 [%mask, %entry], [%rest1, %FROM]
  %over = icmp eq i32 %rest, 0
  br i1 %over, label %done, label %lane
lane:
  %l = call i32 @llvm.cttz.i32(i32 %rest, i1 false)
  %ap = getelementptr i64, ptr %as, i32 %l
  %i = load i64, ptr %ap
  %p = inttoptr i64 %i to ptr
  %cp = getelementptr i64, ptr %cs, i32 %l
  %n = load i64, ptr %cp
  %old = load i64, ptr %p, align 8
  %pending = and i64 %old, FIELD
  %e.s = lshr i64 %old, 20
  %expected = and i64 %e.s, FIELD
  %phase = lshr i64 %old, 40
  %gone = mul i64 %n, %drop
  %expected1 = sub i64 %expected, %gone
  %pending1 = sub i64 %pending, %n
  %last = icmp sle i64 %pending1, 0
  %pending2 = select i1 %last, i64 %expected1, i64 %pending1
  %step = zext i1 %last to i64
  %phase1 = add i64 %phase, %step
  %x.e = shl i64 %expected1, 20
  %x.p = shl i64 %phase1, 40
  %x1 = or i64 %pending2, %x.e
  %x2 = or i64 %x1, %x.p
  store i64 %x2, ptr %p, align 8
  %op = getelementptr i64, ptr %os, i32 %l
  store i64 %old, ptr %op
  %minus = sub i32 %rest, 1
  %rest1 = and i32 %rest, %minus
LAND  br label %loop
done:
  %r = load <32 x i64>, ptr %os
  ret <32 x i64> %r
}
""".replace("FIELD", str(_FIELD)).replace("GIVEN", _GIVEN)
_LAND = """  br i1 %last, label %over.now, label %on
over.now:
  call void @{land}(ptr %ctx, i64 %i)
  br label %on
on:
"""


def _binds_copies(c: WarpCode) -> bool:
    return any(
        i.root == "cp" and "mbarrier" in i.parts for p in c.plans.values() for i in p.function.instructions
    )


def _arrived(c: WarpCode, host: str, mask: str, count: str, *, drop: bool) -> str:
    """Lanes arrive at barriers, each `count` times; gives their states before."""
    if "mbarrier_arrive" not in c.tables.support:
        lands = _binds_copies(c)
        text = _ARRIVE.replace("FROM", "on" if lands else "lane")
        c.need(
            "mbarrier_arrive", text.replace("LAND", _LAND.format(land=copy_queue.land(c)) if lands else "")
        )
    state = c.e.op(
        f"call <32 x i64> @mbarrier_arrive(ptr %ctx, <32 x i64> {host}, i32 {mask}, <32 x i64> {count}, "
        f"i64 {int(drop)})"
    )
    if c.options.trace:
        c.trace_write(memory_ops.gather(c, host, mask, "b64"), "i64", host, mask)
    return state


def _mbarrier(c: WarpCode, i: ir.Instruction) -> None:
    e, what = c.e, i.parts[1]
    if what not in ("init", "inval", "arrive", "arrive_drop", "test_wait", "try_wait", "pending_count"):
        raise NotSupportedError(f"The virtual GPU does not do {i.opcode}.")
    if "expect_tx" in i.parts or "cluster" in i.parts:
        raise NotSupportedError(f"The virtual GPU does not do {i.opcode}.")
    operands = list(i.operands)
    if what == "pending_count":
        pending = e.binary("and", "i64", c.get(operands[1], "b64"), constant("i64", _FIELD))
        c.set(operands[0], e.cast(pending, "i64", "i32"), "u32")
        return
    target = None if isinstance(operands[0], ir.Address) else operands.pop(0)
    if len(operands) and not isinstance(operands[0], ir.Address):
        target = operands.pop(0)
    space = memory_ops.space_of(i)
    address = memory_ops.address_of(c, operands[0], space)
    host = memory_ops.host_addresses(c, memory_ops.as_access(i, "atom", space, 8), address, space, 8)
    mask = c.executed(i)
    if what in ("init", "inval"):
        count = e.cast(c.get(operands[1], "u32"), "i32", "i64") if what == "init" else constant("i64", 0)
        both = e.binary("or", "i64", count, e.binary("shl", "i64", count, constant("i64", 20)))
        memory_ops.scatter(c, both, host, mask, "b64")
    elif what in ("arrive", "arrive_drop"):
        count = e.cast(c.get(operands[1], "u32"), "i32", "i64") if len(operands) > 1 else constant("i64", 1)
        state = _arrived(c, host, mask, count, drop=what == "arrive_drop")
        c.set(target, state, "b64")
    else:
        shift = constant("i64", 40)
        now = e.binary("lshr", "i64", memory_ops.gather(c, host, mask, "b64"), shift)
        if "parity" in i.parts:
            now = e.binary("and", "i64", now, constant("i64", 1))
            then = e.cast(c.get(operands[1], "u32"), "i32", "i64")
        else:
            then = e.binary("lshr", "i64", c.get(operands[1], "b64"), shift)
        c.set(target, e.compare("ne", "i64", now, then), "pred")
