"""LLVM IR of the driver, which runs the warps of a block, and of the trace recorder."""

from __future__ import annotations

from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.text import make_field_load, make_field_pointer, make_splat

TRACE_FUNCTIONS = f"""
define internal void @trace_step(ptr %ctx, i32 %function, i32 %pc, i32 %active, i32 %executed, i32 %level) noinline {{
entry:
{make_field_pointer("trace_record", "%rec.q")}
  store i64 0, ptr %rec.q
{make_field_load("trace_on", "%on")}
  %wanted = and i32 %on, %level
  %is = icmp ne i32 %wanted, 0
  br i1 %is, label %room, label %skip
room:
{make_field_load("trace_cursor", "%at")}{make_field_load("trace_end", "%end")}
  %next = add i64 %at, {layout.TRACE_STEP.itemsize}
  %full = icmp ugt i64 %next, %end
{make_field_load("trace_left", "%left")}{make_field_pointer("trace_left", "%left.q")}
  %whole = icmp eq i32 %on, {layout.TRACE_ALL}
  %price = zext i1 %whole to i32
  %left1 = sub i32 %left, %price
  store i32 %left1, ptr %left.q
  %spent = icmp slt i32 %left1, 0
  %over = or i1 %full, %spent
  br i1 %over, label %cut, label %write
cut:
  call void @trace_cut(ptr %ctx)
  ret void
write:
{make_field_pointer("trace_cursor", "%at.q")}
  store i64 %next, ptr %at.q
  store i64 %at, ptr %rec.q
{make_field_load("trace_number", "%number")}{make_field_pointer("trace_number", "%number.q")}
  %number1 = add i32 %number, 1
  store i32 %number1, ptr %number.q
  %p = inttoptr i64 %at to ptr
  store i32 %pc, ptr %p
  %p1 = getelementptr i32, ptr %p, i64 1
  store i32 %active, ptr %p1
  %p2 = getelementptr i32, ptr %p, i64 2
  store i32 %executed, ptr %p2
  %p3 = getelementptr i32, ptr %p, i64 3
  store i32 %function, ptr %p3
{make_field_load("warp", "%warp")}{make_field_load("depth", "%depth")}
  %p4 = getelementptr i32, ptr %p, i64 4
  store i32 %warp, ptr %p4
  %p5 = getelementptr i32, ptr %p, i64 5
  store i32 %depth, ptr %p5
  ret void
skip:
  ret void
}}
define internal void @trace_cut(ptr %ctx) noinline {{
{make_field_pointer("trace_on", "%on.q")}
  store i32 0, ptr %on.q
{make_field_pointer("truncated", "%cut.q")}
  store i32 1, ptr %cut.q
{make_field_pointer("trace_record", "%rec.z")}
  store i64 0, ptr %rec.z
  ret void
}}
define internal void @trace_row(ptr %ctx, <32 x i64> %v, i32 %mask, i32 %kind, i32 %level) noinline {{
entry:
{make_field_load("trace_on", "%on")}{make_field_load("trace_record", "%rec")}
  %wanted = and i32 %on, %level
  %is = icmp ne i32 %wanted, 0
  %has = icmp ne i64 %rec, 0
  %go = and i1 %is, %has
  br i1 %go, label %room, label %skip
room:
{make_field_load("trace_rows", "%at")}{make_field_load("trace_rows_end", "%end")}
  %next = add i64 %at, {layout.TRACE_ROW.itemsize}
  %full = icmp ugt i64 %next, %end
  br i1 %full, label %cut, label %write
cut:
  ; The step it belongs to is incomplete and goes, too.
{make_field_pointer("trace_cursor", "%cursor.q")}
  store i64 %rec, ptr %cursor.q
  call void @trace_cut(ptr %ctx)
  ret void
write:
{make_field_pointer("trace_rows", "%at.q")}
  store i64 %next, ptr %at.q
{make_field_load("trace_number", "%number")}
  %step = sub i32 %number, 1
  %p = inttoptr i64 %at to ptr
  store i32 %step, ptr %p
  %p1 = getelementptr i32, ptr %p, i64 1
  store i32 %kind, ptr %p1
  %p2 = getelementptr i32, ptr %p, i64 2
  store i32 %mask, ptr %p2
  %p3 = getelementptr i32, ptr %p, i64 4
  %m = bitcast i32 %mask to <32 x i1>
  call void @llvm.masked.store.v32i64.p0(<32 x i64> %v, ptr align 8 %p3, <32 x i1> %m)
  ret void
skip:
  ret void
}}
declare void @llvm.masked.store.v32i64.p0(<32 x i64>, ptr, <32 x i1>)
"""


def make_driver(entry_symbol: str) -> str:
    """Return two LLVM functions that run thread blocks. The function `run_block` runs one block, and
    `run_blocks` runs several.

    `run_block` returns when the block has ended or all of its warps only spin.

    A warp returns when it is done, waits at a barrier, faults or yields. When none can continue, the
    barrier opens: here in the common case that all wait at the same one, in Python otherwise.
    """
    return _RUN_BLOCK_TEXT.replace("@ENTRY", f"@{entry_symbol}") + _RUN_BLOCKS_TEXT


def _make_field_loads(*names: str) -> str:
    return "".join(make_field_load(name, f"%{name}") for name in names)


def _make_field_pointers(*names: str) -> str:
    return "".join(make_field_pointer(name, f"%{name}.p") for name in names)


_RUN_BLOCKS_TEXT = f"""
define i32 @run_blocks(ptr %ctx, i64 %first, i64 %end) {{
entry:
{_make_field_loads("block_order")}{_make_field_pointers("next")}
  %order = inttoptr i64 %block_order to ptr
  br label %block
block:
  %n = phi i64 [%first, %entry], [%n1, %run]
  %left = icmp ult i64 %n, %end
  br i1 %left, label %run, label %finish
run:
  %order.p = getelementptr i64, ptr %order, i64 %n
  %b = load i64, ptr %order.p
  %r = call i32 @run_block(ptr %ctx, i64 %b, i32 1)
  %n1 = add i64 %n, 1
  store i64 %n1, ptr %next.p
  %done = icmp eq i32 %r, {layout.STATUS_DONE}
  br i1 %done, label %block, label %leave
leave:
  ret i32 %r
finish:
  ret i32 {layout.STATUS_DONE}
}}
"""

_RUN_BLOCK_TEXT = f"""
define i32 @run_block(ptr %ctx, i64 %b, i32 %fresh) {{
entry:
{
    _make_field_loads(
        "nctaid_x",
        "nctaid_y",
        "threads",
        "warps",
        "frames",
        "frame_stride",
        "status",
        "block_clock",
        "block_sectors",
        "block_wavefronts",
        "block_longest",
        "local",
        "local_stride",
        "abort_flag",
        "trace_block",
        "trace_warp",
        "patience",
        "hand_over",
        "shared",
        "reserved_shared_bytes",
        "barrier",
        "observed",
        "observer",
    )
}
{
    _make_field_pointers(
        "ctaid_x",
        "ctaid_y",
        "ctaid_z",
        "warp",
        "block_linear",
        "trace_on",
        "truncated",
        "local_base",
        "clock",
        "clock_at_start",
        "sectors",
        "wavefronts",
        "exited",
        "longest_warp",
        "longest_in_block",
    )
}
  %status.b = inttoptr i64 %status to ptr
  %abort.p = inttoptr i64 %abort_flag to ptr
  %is.fresh = icmp ne i32 %fresh, 0
  br i1 %is.fresh, label %number, label %round
number:
  store i64 %b, ptr %block_linear.p
  %nx = zext i32 %nctaid_x to i64
  %ny = zext i32 %nctaid_y to i64
  %x = urem i64 %b, %nx
  %yz = udiv i64 %b, %nx
  %y = urem i64 %yz, %ny
  %z = udiv i64 %yz, %ny
  %x32 = trunc i64 %x to i32
  %y32 = trunc i64 %y to i32
  %z32 = trunc i64 %z to i32
  store i32 %x32, ptr %ctaid_x.p
  store i32 %y32, ptr %ctaid_y.p
  store i32 %z32, ptr %ctaid_z.p
  %clock0 = load i64, ptr %clock.p
  store i64 %clock0, ptr %clock_at_start.p
  store i64 0, ptr %sectors.p
  store i64 0, ptr %wavefronts.p
  store i64 0, ptr %longest_in_block.p
  ; A block finds what the system keeps for itself, at the start of shared memory, full of zeros.
  %kept = inttoptr i64 %shared to ptr
  %kept.bytes = zext i32 %reserved_shared_bytes to i64
  call void @llvm.memset.p0.i64(ptr %kept, i8 0, i64 %kept.bytes, i1 false)
  br label %prepare
prepare:
  %pw = phi i32 [0, %number], [%pw1, %prepare]
  %pw64 = zext i32 %pw to i64
  %st.p = getelementptr i32, ptr %status.b, i64 %pw64
  store i32 {layout.STATUS_YIELDED}, ptr %st.p
  %f.o = mul i64 %pw64, %frame_stride
  %f.i = add i64 %frames, %f.o
  %f.p = inttoptr i64 %f.i to ptr
  %lane0 = mul i32 %pw, 32
  %present = sub i32 %threads, %lane0
{make_splat("i32", "%present", "%presents")}
  %here = icmp slt <32 x i32> <{", ".join(f"i32 {k}" for k in range(32))}>, %presents
  %pcs = select <32 x i1> %here, <32 x i32> zeroinitializer, <32 x i32> splat (i32 {layout.EXITED})
  store <32 x i32> %pcs, ptr %f.p, align 64
  %f.turns = getelementptr i8, ptr %f.p, i64 {layout.SPENT_BUDGETS_OFFSET}
  store i32 0, ptr %f.turns
  %f.copies = getelementptr i8, ptr %f.p, i64 {layout.PENDING_COPIES_OFFSET}
  store i32 0, ptr %f.copies
  %f.rotated = getelementptr i8, ptr %f.p, i64 {layout.ROTATED_OFFSET}
  store i32 0, ptr %f.rotated
  %f.cursor = getelementptr i8, ptr %f.p, i64 {layout.LAST_BLOCK_OFFSET}
  store i32 -1, ptr %f.cursor
  %f.work = getelementptr i8, ptr %f.p, i64 {layout.INSTRUCTION_COUNT_OFFSET}
  store i64 0, ptr %f.work
  %pw1 = add i32 %pw, 1
  %pmore = icmp ult i32 %pw1, %warps
  br i1 %pmore, label %prepare, label %round
round:
  %stalls = phi i32 [0, %entry], [0, %prepare], [%stalls1, %again], [0, %on]
  br label %warp
warp:
  %w = phi i32 [0, %round], [%w1, %next]
  %ready = phi i32 [0, %round], [%ready1, %next]
  %waiting = phi i32 [0, %round], [%waiting1, %next]
  %moved = phi i32 [0, %round], [%moved1, %next]
  %w64 = zext i32 %w to i64
  %s.p = getelementptr i32, ptr %status.b, i64 %w64
  %s = load i32, ptr %s.p
  %can = icmp eq i32 %s, {layout.STATUS_YIELDED}
  br i1 %can, label %call, label %next
call:
  store i32 %w, ptr %warp.p
  store i32 0, ptr %exited.p
  %truncated = load i32, ptr %truncated.p
  %t.block = icmp eq i64 %b, %trace_block
  %t.warp = icmp eq i32 %w, %trace_warp
  %t.every = icmp eq i32 %trace_warp, {layout.EVERY_WARP}
  %t.whole = or i1 %t.warp, %t.every
  %t.level = select i1 %t.whole, i32 {layout.TRACE_ALL}, i32 {layout.TRACE_SHARED}
  %t.open = icmp eq i32 %truncated, 0
  %t.on = and i1 %t.block, %t.open
  %t.i = select i1 %t.on, i32 %t.level, i32 0
  store i32 %t.i, ptr %trace_on.p
  %lo = mul i64 %w64, %local_stride
  %li = add i64 %local, %lo
  store i64 %li, ptr %local_base.p
  %fo = mul i64 %w64, %frame_stride
  %fi = add i64 %frames, %fo
  %fp = inttoptr i64 %fi to ptr
  %clock.before = load i64, ptr %clock.p
  %r = call i32 @ENTRY(ptr %ctx, ptr %fp, i32 -1, i64 0)
  store i32 %r, ptr %s.p
  %clock.after = load i64, ptr %clock.p
  %turn = sub i64 %clock.after, %clock.before
  %work.p = getelementptr i8, ptr %fp, i64 {layout.INSTRUCTION_COUNT_OFFSET}
  %work = load i64, ptr %work.p
  %work1 = add i64 %work, %turn
  store i64 %work1, ptr %work.p
  %longest = load i64, ptr %longest_warp.p
  %longest1 = call i64 @llvm.umax.i64(i64 %longest, i64 %work1)
  store i64 %longest1, ptr %longest_warp.p
  %longest.b = load i64, ptr %longest_in_block.p
  %longest.b1 = call i64 @llvm.umax.i64(i64 %longest.b, i64 %work1)
  store i64 %longest.b1, ptr %longest_in_block.p
  %bad = icmp eq i32 %r, {layout.STATUS_FAULT}
  br i1 %bad, label %fail, label %next
next:
  %now = phi i32 [%s, %warp], [%r, %call]
  %went = phi i1 [false, %warp], [true, %call]
  %is.ready = icmp eq i32 %now, {layout.STATUS_YIELDED}
  %is.waiting = icmp eq i32 %now, {layout.STATUS_WAITING}
  %not.ready = xor i1 %is.ready, true
  %progress = and i1 %went, %not.ready
  %ready.i = zext i1 %is.ready to i32
  %waiting.i = zext i1 %is.waiting to i32
  %progress.i = zext i1 %progress to i32
  %ready1 = add i32 %ready, %ready.i
  %waiting1 = add i32 %waiting, %waiting.i
  %moved1 = or i32 %moved, %progress.i
  %w1 = add i32 %w, 1
  %wmore = icmp ult i32 %w1, %warps
  br i1 %wmore, label %warp, label %turned
turned:
  %flag = load atomic i32, ptr %abort.p monotonic, align 4
  %stop = icmp ne i32 %flag, 0
  br i1 %stop, label %aborted, label %decide
decide:
  %any.waiting = icmp ne i32 %waiting1, 0
  br i1 %any.waiting, label %simple, label %rest
simple:
  ; Do all lanes that have not exited wait at one and the same barrier 0?
  %any.ready0 = icmp ne i32 %ready1, 0
  br i1 %any.ready0, label %ask, label %scan
scan:
  %vw = phi i32 [0, %simple], [%vw1, %scan]
  %low = phi i32 [-1, %simple], [%low1, %scan]
  %high = phi i32 [0, %simple], [%high1, %scan]
  %vw64 = zext i32 %vw to i64
  %vfo = mul i64 %vw64, %frame_stride
  %vfi = add i64 %frames, %vfo
  %vfp = inttoptr i64 %vfi to ptr
  %vpc = load <32 x i32>, ptr %vfp, align 64
  %gone = icmp eq <32 x i32> %vpc, splat (i32 {layout.EXITED})
  %vlow = select <32 x i1> %gone, <32 x i32> splat (i32 -1), <32 x i32> %vpc
  %vhigh = select <32 x i1> %gone, <32 x i32> zeroinitializer, <32 x i32> %vpc
  %lo.w = call i32 @llvm.vector.reduce.umin.v32i32(<32 x i32> %vlow)
  %hi.w = call i32 @llvm.vector.reduce.umax.v32i32(<32 x i32> %vhigh)
  %low1 = call i32 @llvm.umin.i32(i32 %low, i32 %lo.w)
  %high1 = call i32 @llvm.umax.i32(i32 %high, i32 %hi.w)
  %vw1 = add i32 %vw, 1
  %vmore = icmp ult i32 %vw1, %warps
  br i1 %vmore, label %scan, label %scanned
scanned:
  %one = icmp eq i32 %low1, %high1
  %zero = icmp ult i32 %high1, {layout.BARRIER_PC + (1 << layout.BARRIER_SHIFT)}
  %plain = and i1 %one, %zero
  br i1 %plain, label %open, label %ask
open:
  %alone = icmp eq i32 %observed, 0
  br i1 %alone, label %release, label %tell
tell:
  %observer.f = inttoptr i64 %observer to ptr
  call void %observer.f(ptr %ctx, i32 {layout.BLOCK_BARRIER_OPENS}, ptr null, i32 0, ptr null)
  br label %release
release:
  %rw = phi i32 [0, %open], [0, %tell], [%rw1, %release]
  %rw64 = zext i32 %rw to i64
  %rs.p = getelementptr i32, ptr %status.b, i64 %rw64
  %rs = load i32, ptr %rs.p
  %held = icmp eq i32 %rs, {layout.STATUS_WAITING}
  %rs1 = select i1 %held, i32 {layout.STATUS_YIELDED}, i32 %rs
  store i32 %rs1, ptr %rs.p
  %rfo = mul i64 %rw64, %frame_stride
  %rfi = add i64 %frames, %rfo
  %rfp = inttoptr i64 %rfi to ptr
  %rpc = load <32 x i32>, ptr %rfp, align 64
  %alive = icmp ne <32 x i32> %rpc, splat (i32 {layout.EXITED})
  %resumed = sub <32 x i32> %rpc, splat (i32 {layout.BARRIER_PC})
  %rpc1 = select <32 x i1> %alive, <32 x i32> %resumed, <32 x i32> %rpc
  store <32 x i32> %rpc1, ptr %rfp, align 64
  %rw1 = add i32 %rw, 1
  %rmore = icmp ult i32 %rw1, %warps
  br i1 %rmore, label %release, label %opened
ask:
  %barrier.f = inttoptr i64 %barrier to ptr
  %answer = call i32 %barrier.f(ptr %ctx)
  %broken = icmp eq i32 %answer, {layout.BARRIER_FAULT}
  br i1 %broken, label %fail, label %ask1
ask1:
  %did = icmp eq i32 %answer, {layout.BARRIER_OPENED}
  br i1 %did, label %opened, label %rest
opened:
  %others.turn = icmp ne i32 %hand_over, 0
  br i1 %others.turn, label %handed, label %on
handed:
  ret i32 {layout.STATUS_HANDED_OVER}
on:
  br label %round
rest:
  %any.ready = icmp ne i32 %ready1, 0
  br i1 %any.ready, label %spin, label %closed
spin:
  %idle = icmp eq i32 %moved1, 0
  %more = add i32 %stalls, 1
  %stalls1 = select i1 %idle, i32 %more, i32 0
  %tired = icmp sge i32 %stalls1, %patience
  br i1 %tired, label %stalled, label %again
again:
  br label %round
stalled:
  ret i32 {layout.STATUS_YIELDED}
closed:
  %clock1 = load i64, ptr %clock.p
  %clock2 = load i64, ptr %clock_at_start.p
  %spent = sub i64 %clock1, %clock2
  %bc = inttoptr i64 %block_clock to ptr
  %bc.p = getelementptr i64, ptr %bc, i64 %b
  store i64 %spent, ptr %bc.p
  %bs = inttoptr i64 %block_sectors to ptr
  %bs.p = getelementptr i64, ptr %bs, i64 %b
  %bs.v = load i64, ptr %sectors.p
  store i64 %bs.v, ptr %bs.p
  %bw = inttoptr i64 %block_wavefronts to ptr
  %bw.p = getelementptr i64, ptr %bw, i64 %b
  %bw.v = load i64, ptr %wavefronts.p
  store i64 %bw.v, ptr %bw.p
  %bl = inttoptr i64 %block_longest to ptr
  %bl.p = getelementptr i64, ptr %bl, i64 %b
  %bl.v = load i64, ptr %longest_in_block.p
  store i64 %bl.v, ptr %bl.p
  ret i32 {layout.STATUS_DONE}
fail:
  ret i32 {layout.STATUS_FAULT}
aborted:
  call void @fault(ptr %ctx, i32 {layout.ABORTED}, i32 0, i32 -1, i32 0, i32 0, i64 0)
  ret i32 {layout.STATUS_FAULT}
}}
declare i32 @llvm.umin.i32(i32, i32)
"""
