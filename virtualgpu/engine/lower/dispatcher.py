"""LLVM IR of the dispatcher at the start of every warp function, which selects the lanes that run next."""

from __future__ import annotations

from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.emit import constant
from virtualgpu.engine.lower.warp_code import WarpCode


def emit_prologue(code: WarpCode) -> None:
    """Emit the start of a warp function, with its entry, its dispatcher and the exits of all its blocks."""
    emitter = code.emitter
    emitter.label("entry")
    if code.function.is_entry:  # each warp has its own budget, and a new one after each barrier
        emitter.context_store("budget", str(layout.BACK_EDGE_BUDGET))
    emitter.raw("br label %dispatch")
    code.begin_block("dispatch")
    switch_cases = " ".join(
        f"i32 {block.number}, label %bb{block.number}" for block in code.control_flow.blocks
    )
    emitter.lines += [
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
        "  %go.pc = phi i32 [%d.low, %dispatch]" + (", [%r.pc, %rotate]" if code.expired_edges else ""),
        "  %go.mask = phi i32 [%d.mask, %dispatch]" + (", [%r.mask, %rotate]" if code.expired_edges else ""),
        "  %go.wait = phi i32 [%d.wait, %dispatch]" + (", [-1, %rotate]" if code.expired_edges else ""),
        f"  switch i32 %go.pc, label %other [{switch_cases}]",
        "other:",
        f"  %o.done = icmp eq i32 %go.pc, {layout.EXITED}",
        "  br i1 %o.done, label %done, label %o1",
        "done:",
        f"  ret i32 {layout.STATUS_DONE}",
        "o1:",
        f"  %o.barrier = icmp uge i32 %go.pc, {layout.BARRIER_PC}",
        "  br i1 %o.barrier, label %waits, label %parked",
        "waits:",
        f"  ret i32 {layout.STATUS_WAITING}",
        # The remaining lanes wait for each other: let the first of them continue alone.
        "parked:",
        f"  %o.pc = sub i32 %go.pc, {layout.PARKED_PC}",
        "  %o.pcs0 = insertelement <32 x i32> poison, i32 %o.pc, i32 0",
        "  %o.pcs = shufflevector <32 x i32> %o.pcs0, <32 x i32> poison, <32 x i32> zeroinitializer",
        "  %o.new = select <32 x i1> %d.is, <32 x i32> %o.pcs, <32 x i32> %d.pcs",
        "  store <32 x i32> %o.new, ptr %frame, align 64",
    ]
    emitter.context_store("forced", "1")
    emitter.raw("br label %dispatch")
    code.begin_block("failed")
    emitter.raw(f"ret i32 {layout.STATUS_FAULT}")
    if code.has_meetings:  # lanes are parked, or were named wrongly
        code.begin_block("unmet")
        is_faulted = emitter.op(f"icmp ne i32 {emitter.context_load('fault_code')}, 0")
        emitter.raw(f"br i1 {is_faulted}, label %failed, label %dispatch")
    if code.expired_edges:
        emit_rotation(code)


def find_jump_cost(code: WarpCode, target: int) -> tuple[int, int]:
    """Return the cost of a jump, and the number of spent budgets to count if it exhausts the warp's budget.

    A backward jump costs 1, and it costs more in a loop that waits for memory.
    """
    is_back_edge = target <= code.block.number
    if not is_back_edge or not cfg.waits_on_memory(
        code.function, code.control_flow, code.block.number, target, code.plan.memory_results
    ):
        return int(is_back_edge), int(is_back_edge)
    return layout.BACK_EDGE_BUDGET if code.options.is_observed else layout.SPIN_COST, layout.ROTATION_INTERVAL


def emit_budget_spending(code: WarpCode, target: int) -> None:
    """Emit code that subtracts the cost of a jump from the warp's budget. If the budget is exhausted, other
    lanes run next.

    With an observer, a jump to a later block may end the budget, too. Each access is slow then, so a
    polling loop lets others run at once.
    """
    emitter = code.emitter
    is_observed = code.options.is_observed
    is_back_edge = target <= code.block.number
    if not is_back_edge and not is_observed:
        return
    jump_cost, budget_weight = find_jump_cost(code, target)
    remaining_budget = emitter.op(f"sub i32 {emitter.context_load('budget')}, {jump_cost}")
    emitter.context_store("budget", remaining_budget)
    is_exhausted = emitter.op(f"icmp sle i32 {remaining_budget}, 0")
    exhausted_label = emitter.name("spent")
    next_label = emitter.name("more")
    emitter.raw(f"br i1 {is_exhausted}, label %{exhausted_label}, label %{next_label}")
    code.begin_block(exhausted_label)
    code.store_pcs(code.active_lanes, constant("i32", target))
    emitter.raw("br label %expired")
    code.expired_edges.append(
        (str(target), str(code.control_flow.blocks[target].first), str(budget_weight), exhausted_label)
    )
    code.begin_block(next_label)


def emit_rotation(code: WarpCode) -> None:
    """Emit code that runs when the warp's budget is exhausted. This code checks the abort flag, and then lets
    waiting lanes or warps run.
    """
    emitter = code.emitter
    code.begin_block("expired")
    target_phi = ", ".join(f"[{target_block}, %{label}]" for target_block, _, _, label in code.expired_edges)
    pcs_of_edges = ", ".join(f"[{first_pc}, %{label}]" for _, first_pc, _, label in code.expired_edges)
    budget_weight_phi = ", ".join(f"[{n}, %{label}]" for _, _, n, label in code.expired_edges)
    emitter.lines += [
        f"  %x.block = phi i32 {target_phi}",
        f"  %x.pc = phi i32 {pcs_of_edges}",
        f"  %x.turns = phi i32 {budget_weight_phi}",
    ]
    emitter.context_store("budget", str(layout.BACK_EDGE_BUDGET))
    flag_pointer = emitter.op(f"inttoptr i64 {emitter.context_load('abort_flag')} to ptr")
    abort_flag = emitter.op(f"load atomic i32, ptr {flag_pointer} monotonic, align 4")
    is_aborted = emitter.op(f"icmp ne i32 {abort_flag}, 0")
    emitter.raw(f"br i1 {is_aborted}, label %aborted, label %turn")
    code.begin_block("aborted")
    lane_pcs = emitter.op("load <32 x i32>, ptr %frame, align 64")
    lanes = emitter.mask_bits(emitter.compare("eq", "i32", lane_pcs, emitter.splat("i32", "%x.block")))
    lane = emitter.op(f"call i32 @llvm.cttz.i32(i32 {lanes}, i1 false)")
    emitter.raw(
        f"call void @fault(ptr %ctx, i32 {layout.ABORTED}, i32 {code.index}, i32 %x.pc, "
        f"i32 {lane}, i32 0, i64 0)"
    )
    emitter.raw("br label %failed")
    code.begin_block("turn")
    emitter.lines += [
        "  %r.pcs = load <32 x i32>, ptr %frame, align 64",
        "  %r.now0 = insertelement <32 x i32> poison, i32 %x.block, i32 0",
        "  %r.now = shufflevector <32 x i32> %r.now0, <32 x i32> poison, <32 x i32> zeroinitializer",
        f"  %r.c.p = getelementptr i8, ptr %frame, i64 {layout.LAST_BLOCK_OFFSET}",
        "  %r.c = load i32, ptr %r.c.p",
        "  %r.c0 = insertelement <32 x i32> poison, i32 %r.c, i32 0",
        "  %r.cs = shufflevector <32 x i32> %r.c0, <32 x i32> poison, <32 x i32> zeroinitializer",
        "  %r.beyond = icmp sgt <32 x i32> %r.pcs, %r.cs",
        "  %r.other = icmp ne <32 x i32> %r.pcs, %r.now",
        "  %r.later = and <32 x i1> %r.beyond, %r.other",
        "  %r.rest = select <32 x i1> %r.later, <32 x i32> %r.pcs, <32 x i32> splat (i32 -1)",
        "  %r.pc = call i32 @llvm.vector.reduce.umin.v32i32(<32 x i32> %r.rest)",
        f"  %r.can = icmp ult i32 %r.pc, {layout.PARKED_PC}",
        f"  %r.n.p = getelementptr i8, ptr %frame, i64 {layout.SPENT_BUDGETS_OFFSET}",
        "  %r.n = load i32, ptr %r.n.p",
        "  %r.n1 = add i32 %r.n, %x.turns",
        "  store i32 %r.n1, ptr %r.n.p",
    ]
    rotation_interval = emitter.context_load("rotate_every")
    emitter.lines += [
        f"  %r.wait = icmp ult i32 %r.n1, {rotation_interval}",
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
    emitter.raw(f"ret i32 {layout.STATUS_YIELDED}" if code.function.is_entry else "br label %dispatch")
