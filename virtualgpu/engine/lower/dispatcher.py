"""Which lanes run next: the dispatcher every warp function starts with, as LLVM IR."""

from __future__ import annotations

from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.emit import constant
from virtualgpu.engine.lower.warp_code import WarpCode


def prologue(c: WarpCode) -> None:
    """Entry, dispatcher, and the exits every block shares."""
    e = c.e
    e.label("entry")
    if c.function.is_entry:  # each warp has its own budget, anew when it comes back from a barrier
        e.context_store("budget", str(layout.BACK_EDGE_BUDGET))
    e.raw("br label %dispatch")
    c.begin("dispatch")
    cases = " ".join(f"i32 {b.number}, label %bb{b.number}" for b in c.flow.blocks)
    e.lines += [
        "  %d.pcs = load <32 x i32>, ptr %frame, align 64",
        "  %d.low = call i32 @llvm.vector.reduce.umin.v32i32(<32 x i32> %d.pcs)",
        "  %d.lows0 = insertelement <32 x i32> poison, i32 %d.low, i32 0",
        "  %d.lows = shufflevector <32 x i32> %d.lows0, <32 x i32> poison, <32 x i32> zeroinitializer",
        "  %d.is = icmp eq <32 x i32> %d.pcs, %d.lows",
        "  %d.mask = bitcast <32 x i1> %d.is to i32",
        "  %d.rest = select <32 x i1> %d.is, <32 x i32> splat (i32 -1), <32 x i32> %d.pcs",
        "  %d.wait = call i32 @llvm.vector.reduce.umin.v32i32(<32 x i32> %d.rest)",
        "  br label %switch",
        "switch:",
        "  %go.pc = phi i32 [%d.low, %dispatch]" + (", [%r.pc, %rotate]" if c.expired else ""),
        "  %go.mask = phi i32 [%d.mask, %dispatch]" + (", [%r.mask, %rotate]" if c.expired else ""),
        "  %go.wait = phi i32 [%d.wait, %dispatch]" + (", [-1, %rotate]" if c.expired else ""),
        f"  switch i32 %go.pc, label %other [{cases}]",
        "other:",
        f"  %o.done = icmp eq i32 %go.pc, {layout.EXITED}",
        "  br i1 %o.done, label %done, label %o1",
        "done:",
        f"  ret i32 {layout.DONE}",
        "o1:",
        f"  %o.barrier = icmp uge i32 %go.pc, {layout.AT_BARRIER}",
        "  br i1 %o.barrier, label %waits, label %parked",
        "waits:",
        f"  ret i32 {layout.WAITS}",
        # Only lanes that wait for each other are left: let the first of them go on alone.
        "parked:",
        f"  %o.pc = sub i32 %go.pc, {layout.PARKED}",
        "  %o.pcs0 = insertelement <32 x i32> poison, i32 %o.pc, i32 0",
        "  %o.pcs = shufflevector <32 x i32> %o.pcs0, <32 x i32> poison, <32 x i32> zeroinitializer",
        "  %o.new = select <32 x i1> %d.is, <32 x i32> %o.pcs, <32 x i32> %d.pcs",
        "  store <32 x i32> %o.new, ptr %frame, align 64",
    ]
    e.context_store("forced", "1")
    e.raw("br label %dispatch")
    c.begin("failed")
    e.raw(f"ret i32 {layout.FAULT}")
    if c.meets:  # lanes are parked, or were named wrongly
        c.begin("unmet")
        failed = e.op(f"icmp ne i32 {e.context_load('fault_code')}, 0")
        e.raw(f"br i1 {failed}, label %failed, label %dispatch")
    if c.expired:
        rotation(c)


def price(c: WarpCode, target: int) -> tuple[int, int]:
    """What going to a block costs of the budget, and how many turns a budget that it uses up counts for."""
    back = target <= c.block.number
    if not back or not cfg.waits_on_memory(c.function, c.flow, c.block.number, target, c.plan.answers):
        return int(back), int(back)
    return layout.BACK_EDGE_BUDGET if c.options.observe else layout.SPIN_PRICE, layout.ROTATE_EVERY


def spend(c: WarpCode, target: int) -> None:
    """Take a back edge from the warp's budget; where it is used up, others get a turn.

    An observer may end a turn on any edge. Each access is slow then, so polls end it at once.
    """
    e = c.e
    observe = c.options.observe
    back = target <= c.block.number
    if not back and not observe:
        return
    cost, turns = price(c, target)
    left = e.op(f"sub i32 {e.context_load('budget')}, {cost}")
    e.context_store("budget", left)
    spent = e.op(f"icmp sle i32 {left}, 0")
    over = e.name("spent")
    onward = e.name("more")
    e.raw(f"br i1 {spent}, label %{over}, label %{onward}")
    c.begin(over)
    c.store_pcs(c.mask_v, constant("i32", target))
    e.raw("br label %expired")
    c.expired.append((str(target), str(c.flow.blocks[target].first), str(turns), over))
    c.begin(onward)


def rotation(c: WarpCode) -> None:
    """After many back edges: look at the abort flag, then give waiting lanes or warps a turn."""
    e = c.e
    c.begin("expired")
    targets = ", ".join(f"[{t}, %{label}]" for t, _, _, label in c.expired)
    firsts = ", ".join(f"[{f}, %{label}]" for _, f, _, label in c.expired)
    turns = ", ".join(f"[{n}, %{label}]" for _, _, n, label in c.expired)
    e.lines += [
        f"  %x.block = phi i32 {targets}",
        f"  %x.pc = phi i32 {firsts}",
        f"  %x.turns = phi i32 {turns}",
    ]
    e.context_store("budget", str(layout.BACK_EDGE_BUDGET))
    flag_pointer = e.op(f"inttoptr i64 {e.context_load('abort_flag')} to ptr")
    flag = e.op(f"load atomic i32, ptr {flag_pointer} monotonic, align 4")
    stop = e.op(f"icmp ne i32 {flag}, 0")
    e.raw(f"br i1 {stop}, label %aborted, label %turn")
    c.begin("aborted")
    pcs = e.op("load <32 x i32>, ptr %frame, align 64")
    mine = e.mask_bits(e.compare("eq", "i32", pcs, e.splat("i32", "%x.block")))
    lane = e.op(f"call i32 @llvm.cttz.i32(i32 {mine}, i1 false)")
    e.raw(
        f"call void @fault(ptr %ctx, i32 {layout.ABORTED}, i32 {c.index}, i32 %x.pc, "
        f"i32 {lane}, i32 0, i64 0)"
    )
    e.raw("br label %failed")
    c.begin("turn")
    e.lines += [
        "  %r.pcs = load <32 x i32>, ptr %frame, align 64",
        "  %r.now0 = insertelement <32 x i32> poison, i32 %x.block, i32 0",
        "  %r.now = shufflevector <32 x i32> %r.now0, <32 x i32> poison, <32 x i32> zeroinitializer",
        f"  %r.c.p = getelementptr i8, ptr %frame, i64 {layout.CURSOR_OFFSET}",
        "  %r.c = load i32, ptr %r.c.p",
        "  %r.c0 = insertelement <32 x i32> poison, i32 %r.c, i32 0",
        "  %r.cs = shufflevector <32 x i32> %r.c0, <32 x i32> poison, <32 x i32> zeroinitializer",
        "  %r.beyond = icmp sgt <32 x i32> %r.pcs, %r.cs",
        "  %r.other = icmp ne <32 x i32> %r.pcs, %r.now",
        "  %r.later = and <32 x i1> %r.beyond, %r.other",
        "  %r.rest = select <32 x i1> %r.later, <32 x i32> %r.pcs, <32 x i32> splat (i32 -1)",
        "  %r.pc = call i32 @llvm.vector.reduce.umin.v32i32(<32 x i32> %r.rest)",
        f"  %r.can = icmp ult i32 %r.pc, {layout.PARKED}",
        f"  %r.n.p = getelementptr i8, ptr %frame, i64 {layout.TURNS_OFFSET}",
        "  %r.n = load i32, ptr %r.n.p",
        "  %r.n1 = add i32 %r.n, %x.turns",
        "  store i32 %r.n1, ptr %r.n.p",
    ]
    patience = e.context_load("rotate_every")
    e.lines += [
        f"  %r.wait = icmp ult i32 %r.n1, {patience}",
        "  %r.now.can = xor i1 %r.wait, true",
        "  %r.go = and i1 %r.can, %r.now.can",
        # Whoever has had its turn waits for the round to end: however lanes part and meet, all others
        # of the warp come first, and then the other warps.
        "  %r.c1 = select i1 %r.go, i32 %r.pc, i32 -1",
        "  store i32 %r.c1, ptr %r.c.p",
        "  br i1 %r.go, label %rotate, label %yield",
        "rotate:",
        "  store i32 0, ptr %r.n.p",
        f"  %r.r.p = getelementptr i8, ptr %frame, i64 {layout.ROTATED_OFFSET}",
        "  store i32 1, ptr %r.r.p",
        "  %r.sel0 = insertelement <32 x i32> poison, i32 %r.pc, i32 0",
        "  %r.sel = shufflevector <32 x i32> %r.sel0, <32 x i32> poison, <32 x i32> zeroinitializer",
        "  %r.is = icmp eq <32 x i32> %r.pcs, %r.sel",
        "  %r.mask = bitcast <32 x i1> %r.is to i32",
        "  br label %switch",
        "yield:",
    ]
    e.raw(f"ret i32 {layout.YIELDS}" if c.function.is_entry else "br label %dispatch")
