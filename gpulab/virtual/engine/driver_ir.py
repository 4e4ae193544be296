"""The block driver and the trace recorder, as LLVM IR."""

from __future__ import annotations

from gpulab.virtual.engine import layout
from gpulab.virtual.engine.irtext import field, load_field, splat

TRACE = f"""
define internal void @trace_step(ptr %ctx, i32 %function, i32 %pc, i32 %active, i32 %executed) noinline {{
entry:
{load_field("trace_on", "%on")}
  %is = icmp ne i32 %on, 0
  br i1 %is, label %room, label %skip
room:
{load_field("trace_cursor", "%at")}{load_field("trace_end", "%end")}
  %next = add i64 %at, {layout.TRACE_STEP.itemsize}
  %full = icmp ugt i64 %next, %end
  br i1 %full, label %cut, label %write
cut:
{field("trace_on", "%on.q")}
  store i32 0, ptr %on.q
{field("truncated", "%cut.q")}
  store i32 1, ptr %cut.q
{field("trace_record", "%rec.z")}
  store i64 0, ptr %rec.z
  ret void
write:
{field("trace_cursor", "%at.q")}
  store i64 %next, ptr %at.q
{field("trace_record", "%rec.q")}
  store i64 %at, ptr %rec.q
  %p = inttoptr i64 %at to ptr
  store i32 %pc, ptr %p
  %p1 = getelementptr i32, ptr %p, i64 1
  store i32 %active, ptr %p1
  %p2 = getelementptr i32, ptr %p, i64 2
  store i32 %executed, ptr %p2
  %p3 = getelementptr i32, ptr %p, i64 3
  store i32 %function, ptr %p3
  ret void
skip:
  ret void
}}
define internal void @trace_lanes(ptr %ctx, <32 x i64> %v, i32 %mask, i64 %where) noinline {{
entry:
{load_field("trace_on", "%on")}{load_field("trace_record", "%rec")}
  %is = icmp ne i32 %on, 0
  %has = icmp ne i64 %rec, 0
  %go = and i1 %is, %has
  br i1 %go, label %write, label %skip
write:
  %at = add i64 %rec, %where
  %p = inttoptr i64 %at to ptr
  %m = bitcast i32 %mask to <32 x i1>
  call void @llvm.masked.store.v32i64.p0(<32 x i64> %v, ptr align 8 %p, <32 x i1> %m)
  br label %skip
skip:
  ret void
}}
declare void @llvm.masked.store.v32i64.p0(<32 x i64>, ptr, <32 x i1>)
"""


def driver(entry: str) -> str:
    """Run blocks [%first, %end): go round the warps of each until all are done.

    A warp returns when it is done, waits at a barrier, faults or yields. When no warp can go on the
    barrier opens; the abort flag is looked at between rounds.
    """
    fields = {
        name: field(name, f"%{name}.p")
        for name in ("ctaid_x", "ctaid_y", "ctaid_z", "warp", "block_linear", "trace_on", "local_base",
                     "clock", "sectors", "wavefronts", "exited")
    }  # fmt: skip
    loads = "".join(
        load_field(name, f"%{name}")
        for name in ("nctaid_x", "nctaid_y", "threads", "warps", "frames", "frame_stride", "status",
                     "block_order", "block_clock", "block_sectors", "block_wavefronts", "local",
                     "local_stride", "abort_flag", "trace_block", "trace_warp", "truncated")
    )  # fmt: skip
    return f"""
define i32 @run_blocks(ptr %ctx, i64 %first, i64 %end) {{
entry:
{loads}{"".join(fields.values())}
  %status.p2 = inttoptr i64 %status to ptr
  %abort.p = inttoptr i64 %abort_flag to ptr
  %ordered = icmp ne i64 %block_order, 0
  %nx = zext i32 %nctaid_x to i64
  %ny = zext i32 %nctaid_y to i64
  br label %block
block:
  %n = phi i64 [%first, %entry], [%n1, %closed]
  %left = icmp ult i64 %n, %end
  br i1 %left, label %open, label %finish
open:
  br i1 %ordered, label %pick, label %number
pick:
  %order.b = inttoptr i64 %block_order to ptr
  %order.p = getelementptr i64, ptr %order.b, i64 %n
  %picked = load i64, ptr %order.p
  br label %number
number:
  %b = phi i64 [%n, %open], [%picked, %pick]
  store i64 %b, ptr %block_linear.p
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
  store i64 0, ptr %sectors.p
  store i64 0, ptr %wavefronts.p
  br label %prepare
prepare:
  %pw = phi i32 [0, %number], [%pw1, %prepare]
  %pw64 = zext i32 %pw to i64
  %st.p = getelementptr i32, ptr %status.p2, i64 %pw64
  store i32 {layout.YIELDS}, ptr %st.p
  %f.o = mul i64 %pw64, %frame_stride
  %f.i = add i64 %frames, %f.o
  %f.p = inttoptr i64 %f.i to ptr
  %lane0 = mul i32 %pw, 32
  %present = sub i32 %threads, %lane0
{splat("i32", "%present", "%presents")}
  %here = icmp slt <32 x i32> <{", ".join(f"i32 {k}" for k in range(32))}>, %presents
  %pcs = select <32 x i1> %here, <32 x i32> zeroinitializer, <32 x i32> splat (i32 {layout.EXITED})
  store <32 x i32> %pcs, ptr %f.p, align 64
  %pw1 = add i32 %pw, 1
  %pmore = icmp ult i32 %pw1, %warps
  br i1 %pmore, label %prepare, label %round
round:
  br label %warp
warp:
  %w = phi i32 [0, %round], [%w1, %next]
  %ready = phi i32 [0, %round], [%ready1, %next]
  %waiting = phi i32 [0, %round], [%waiting1, %next]
  %w64 = zext i32 %w to i64
  %s.p = getelementptr i32, ptr %status.p2, i64 %w64
  %s = load i32, ptr %s.p
  %can = icmp eq i32 %s, {layout.YIELDS}
  br i1 %can, label %call, label %next
call:
  store i32 %w, ptr %warp.p
  store i32 0, ptr %exited.p
  %t.block = icmp eq i64 %b, %trace_block
  %t.warp = icmp eq i32 %w, %trace_warp
  %t.open = icmp eq i32 %truncated, 0
  %t.both = and i1 %t.block, %t.warp
  %t.on = and i1 %t.both, %t.open
  %t.i = zext i1 %t.on to i32
  store i32 %t.i, ptr %trace_on.p
  %lo = mul i64 %w64, %local_stride
  %li = add i64 %local, %lo
  store i64 %li, ptr %local_base.p
  %fo = mul i64 %w64, %frame_stride
  %fi = add i64 %frames, %fo
  %fp = inttoptr i64 %fi to ptr
  %r = call i32 @{entry}(ptr %ctx, ptr %fp, i32 -1, i64 0)
  store i32 %r, ptr %s.p
  %bad = icmp eq i32 %r, {layout.FAULT}
  br i1 %bad, label %fail, label %next
next:
  %now = phi i32 [%s, %warp], [%r, %call]
  %is.ready = icmp eq i32 %now, {layout.YIELDS}
  %is.waiting = icmp eq i32 %now, {layout.WAITS}
  %ready.i = zext i1 %is.ready to i32
  %waiting.i = zext i1 %is.waiting to i32
  %ready1 = add i32 %ready, %ready.i
  %waiting1 = add i32 %waiting, %waiting.i
  %w1 = add i32 %w, 1
  %wmore = icmp ult i32 %w1, %warps
  br i1 %wmore, label %warp, label %turned
turned:
  %flag = load atomic i32, ptr %abort.p monotonic, align 4
  %stop = icmp ne i32 %flag, 0
  br i1 %stop, label %aborted, label %decide
decide:
  %any.ready = icmp ne i32 %ready1, 0
  br i1 %any.ready, label %round, label %barrier
barrier:
  %any.waiting = icmp ne i32 %waiting1, 0
  br i1 %any.waiting, label %release, label %closed
release:
  %rw = phi i32 [0, %barrier], [%rw1, %released]
  %rw64 = zext i32 %rw to i64
  %rs.p = getelementptr i32, ptr %status.p2, i64 %rw64
  %rs = load i32, ptr %rs.p
  %held = icmp eq i32 %rs, {layout.WAITS}
  br i1 %held, label %free, label %released
free:
  store i32 {layout.YIELDS}, ptr %rs.p
  %rfo = mul i64 %rw64, %frame_stride
  %rfi = add i64 %frames, %rfo
  %rfp = inttoptr i64 %rfi to ptr
  %rpc = load <32 x i32>, ptr %rfp, align 64
  %parked = icmp uge <32 x i32> %rpc, splat (i32 {layout.AT_BARRIER})
  %alive = icmp ne <32 x i32> %rpc, splat (i32 {layout.EXITED})
  %mine = and <32 x i1> %parked, %alive
  %resumed = sub <32 x i32> %rpc, splat (i32 {layout.AT_BARRIER})
  %rpc1 = select <32 x i1> %mine, <32 x i32> %resumed, <32 x i32> %rpc
  store <32 x i32> %rpc1, ptr %rfp, align 64
  br label %released
released:
  %rw1 = add i32 %rw, 1
  %rmore = icmp ult i32 %rw1, %warps
  br i1 %rmore, label %release, label %round
closed:
  %clock1 = load i64, ptr %clock.p
  %spent = sub i64 %clock1, %clock0
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
  %n1 = add i64 %n, 1
  br label %block
finish:
  ret i32 {layout.DONE}
fail:
  ret i32 {layout.FAULT}
aborted:
  call void @fault(ptr %ctx, i32 {layout.ABORTED}, i32 0, i32 -1, i32 0, i32 0, i64 0)
  ret i32 {layout.FAULT}
}}
"""
