"""Asynchronous copies and ``mbarrier``: copies happen at once, barriers count as on hardware."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpulab.errors import NotSupportedError
from gpulab.ptx import ir
from gpulab.virtual.engine import memory_ops
from gpulab.virtual.engine.emit import constant

if TYPE_CHECKING:
    from gpulab.virtual.engine.function import FunctionCompiler

# An mbarrier's 64 bits: pending arrivals, expected arrivals, completed phases.
_FIELD = (1 << 20) - 1


def emit(c: FunctionCompiler, i: ir.Instruction) -> bool:
    """Emit ``cp.async`` or ``mbarrier``; False if the instruction is neither."""
    if i.root == "cp" and i.parts[1] == "async":
        _copy(c, i)
    elif i.root == "mbarrier":
        _mbarrier(c, i)
    else:
        return False
    return True


def _copy(c: FunctionCompiler, i: ir.Instruction) -> None:
    """``cp.async``: global to shared, 4, 8 or 16 bytes a lane; the rest is zeroed."""
    if i.parts[2] in ("commit_group", "wait_group", "wait_all"):
        return
    if "bulk" in i.parts or "mbarrier" in i.parts:
        raise NotSupportedError(f"The virtual GPU does not do {i.opcode}; copy with plain loads and stores.")
    e = c.e
    size_operand = i.operands[2]
    assert isinstance(size_operand, ir.Immediate)
    size = size_operand.value
    to = memory_ops.address_of(c, i.operands[0], "shared")
    source = memory_ops.address_of(c, i.operands[1], "global")
    from_host = memory_ops.host_addresses(
        c, memory_ops.as_access(i, "ld", "global", size), source, "global", size
    )
    to_host = memory_ops.host_addresses(c, memory_ops.as_access(i, "st", "shared", size), to, "shared", size)
    taken = i.operands[3] if len(i.operands) > 3 else None
    limit = c.get(taken, "u32") if isinstance(taken, ir.Register | ir.Immediate) else None
    for at in range(0, size, 4):
        place = e.binary("add", "i64", from_host, constant("i64", at))
        word = memory_ops.gather(c, place, c.executed(i), "b32")
        if limit is not None:
            inside = e.compare("ugt", "i32", limit, constant("i32", at))
            word = e.select("i32", inside, word, constant("i32", 0))
        place = e.binary("add", "i64", to_host, constant("i64", at))
        memory_ops.scatter(c, word, place, c.executed(i), "b32")


_ARRIVE = """
define internal <32 x i64> @mbarrier_arrive(<32 x i64> %a, i32 %mask, <32 x i64> %count, i64 %drop) noinline {
entry:
  %as = alloca <32 x i64>
  %cs = alloca <32 x i64>
  %os = alloca <32 x i64>
  store <32 x i64> %a, ptr %as
  store <32 x i64> %count, ptr %cs
  store <32 x i64> zeroinitializer, ptr %os
  br label %loop
loop:
  %rest = phi i32 [%mask, %entry], [%rest1, %lane]
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
  br label %loop
done:
  %r = load <32 x i64>, ptr %os
  ret <32 x i64> %r
}
""".replace("FIELD", str(_FIELD))


def _mbarrier(c: FunctionCompiler, i: ir.Instruction) -> None:
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
        c.need("mbarrier_arrive", _ARRIVE)
        state = e.op(
            f"call <32 x i64> @mbarrier_arrive(<32 x i64> {host}, i32 {mask}, <32 x i64> {count}, "
            f"i64 {int(what == 'arrive_drop')})"
        )
        if c.options.trace:
            c.trace_write(memory_ops.gather(c, host, mask, "b64"), "i64", host, mask)
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
