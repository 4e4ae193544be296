"""The dispatcher at the start of every warp function, which selects the lanes that run next, as LLVM IR."""

from __future__ import annotations

from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.emit import constant
from virtualgpu.engine.lower.warp_code import WarpCode


def prologue(c: WarpCode) -> None:
    """Emit the entry, the dispatcher, and the exits that all blocks share."""
    e = c.e
    e.label("entry")
    if c.function.is_entry:  # each warp has its own budget, and a new one after each barrier
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
        "  %go.pc = phi i32 [%d.low, %dispatch]" + (", [%r.pc, %rotate]" if c.expired_edges else ""),
        "  %go.mask = phi i32 [%d.mask, %dispatch]" + (", [%r.mask, %rotate]" if c.expired_edges else ""),
        "  %go.wait = phi i32 [%d.wait, %dispatch]" + (", [-1, %rotate]" if c.expired_edges else ""),
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
        # The remaining lanes wait for each other: let the first of them continue alone.
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
    if c.has_meetings:  # lanes are parked, or were named wrongly
        c.begin("unmet")
        failed = e.op(f"icmp ne i32 {e.context_load('fault_code')}, 0")
        e.raw(f"br i1 {failed}, label %failed, label %dispatch")
    if c.expired_edges:
        rotation(c)


def jump_cost(c: WarpCode, target: int) -> tuple[int, int]:
    """Return the cost of a jump to a block, and the number of turns that a budget exhausted there counts for."""
    is_back_edge = target <= c.block.number
    if not is_back_edge or not cfg.waits_on_memory(
        c.function, c.flow, c.block.number, target, c.plan.memory_results
    ):
        return int(is_back_edge), int(is_back_edge)
    return layout.BACK_EDGE_BUDGET if c.options.observe else layout.SPIN_PRICE, layout.ROTATE_EVERY


def spend(c: WarpCode, target: int) -> None:
    """Subtract a back edge from the warp's budget; when it is exhausted, other lanes run.

    With an observer, a turn may end on any edge. Each access is slow then, so a polling loop ends its turn at
    once.
    """
    e = c.e
    observe = c.options.observe
    is_back_edge = target <= c.block.number
    if not is_back_edge and not observe:
        return
    cost, turns = jump_cost(c, target)
    remaining = e.op(f"sub i32 {e.context_load('budget')}, {cost}")
    e.context_store("budget", remaining)
    exhausted = e.op(f"icmp sle i32 {remaining}, 0")
    exhausted_label = e.name("spent")
    next_label = e.name("more")
    e.raw(f"br i1 {exhausted}, label %{exhausted_label}, label %{next_label}")
    c.begin(exhausted_label)
    c.store_pcs(c.active_lanes, constant("i32", target))
    e.raw("br label %expired")
    c.expired_edges.append((str(target), str(c.flow.blocks[target].first), str(turns), exhausted_label))
    c.begin(next_label)


def rotation(c: WarpCode) -> None:
    """Emit the end of a budget: read the abort flag, then let waiting lanes or warps run."""
    e = c.e
    c.begin("expired")
    targets = ", ".join(f"[{t}, %{label}]" for t, _, _, label in c.expired_edges)
    pcs_of_edges = ", ".join(f"[{f}, %{label}]" for _, f, _, label in c.expired_edges)
    turns = ", ".join(f"[{n}, %{label}]" for _, _, n, label in c.expired_edges)
    e.lines += [
        f"  %x.block = phi i32 {targets}",
        f"  %x.pc = phi i32 {pcs_of_edges}",
        f"  %x.turns = phi i32 {turns}",
    ]
    e.context_store("budget", str(layout.BACK_EDGE_BUDGET))
    flag_pointer = e.op(f"inttoptr i64 {e.context_load('abort_flag')} to ptr")
    flag = e.op(f"load atomic i32, ptr {flag_pointer} monotonic, align 4")
    stop = e.op(f"icmp ne i32 {flag}, 0")
    e.raw(f"br i1 {stop}, label %aborted, label %turn")
    c.begin("aborted")
    pcs = e.op("load <32 x i32>, ptr %frame, align 64")
    lanes = e.mask_bits(e.compare("eq", "i32", pcs, e.splat("i32", "%x.block")))
    lane = e.op(f"call i32 @llvm.cttz.i32(i32 {lanes}, i1 false)")
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
        # Lanes that have run wait for the end of the round: however lanes diverge and meet, all others
        # of the warp run first, and then the other warps.
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
