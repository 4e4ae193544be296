"""Support functions that are linked into every kernel: faults, and the table of live allocations."""

from __future__ import annotations

from virtualgpu.engine.ir import access_rules, layout
from virtualgpu.engine.ir.text import make_field_load

COMMON_FUNCTIONS = f"""
define internal void @fault(ptr %ctx, i32 %code, i32 %function, i32 %pc, i32 %lane, i32 %size, i64 %address) noinline cold {{
  %p0 = getelementptr i8, ptr %ctx, i64 {layout.get_field_offset("fault_code")}
  %old = load i32, ptr %p0
  %first = icmp eq i32 %old, 0
  br i1 %first, label %set, label %done
set:
  store i32 %code, ptr %p0
  %p1 = getelementptr i8, ptr %ctx, i64 {layout.get_field_offset("fault_function")}
  store i32 %function, ptr %p1
  %p2 = getelementptr i8, ptr %ctx, i64 {layout.get_field_offset("fault_pc")}
  store i32 %pc, ptr %p2
  %p3 = getelementptr i8, ptr %ctx, i64 {layout.get_field_offset("fault_lane")}
  store i32 %lane, ptr %p3
  %p4 = getelementptr i8, ptr %ctx, i64 {layout.get_field_offset("fault_size")}
  store i32 %size, ptr %p4
  %p5 = getelementptr i8, ptr %ctx, i64 {layout.get_field_offset("fault_address")}
  store i64 %address, ptr %p5
  br label %done
done:
  ret void
}}

define internal i1 @find_live(ptr %ctx, ptr %cache, <32 x i64> %a, i32 %mask, i32 %function, i32 %pc, i32 %size) noinline {{
entry:
{make_field_load("live_starts", "%starts.i")}{make_field_load("live_ends", "%ends.i")}{make_field_load("live_count", "%n")}
  %starts = inttoptr i64 %starts.i to ptr
  %ends = inttoptr i64 %ends.i to ptr
  %spill = alloca <32 x i64>
  store <32 x i64> %a, ptr %spill
  %size64 = zext i32 %size to i64
  %low = sub i64 %size64, 1
  br label %loop
loop:
  %rest = phi i32 [%mask, %entry], [%rest1, %next]
  %over = icmp eq i32 %rest, 0
  br i1 %over, label %good, label %lane
lane:
  %l = call i32 @llvm.cttz.i32(i32 %rest, i1 false)
  %ap = getelementptr i64, ptr %spill, i32 %l
  %x = load i64, ptr %ap
  br label %search
search:
  %lo = phi i64 [0, %lane], [%lo1, %step]
  %hi = phi i64 [%n, %lane], [%hi1, %step]
  %more = icmp ult i64 %lo, %hi
  br i1 %more, label %step, label %found
step:
  %sum = add i64 %lo, %hi
  %mid = lshr i64 %sum, 1
  %sp = getelementptr i64, ptr %starts, i64 %mid
  %s = load i64, ptr %sp
  %le = icmp ule i64 %s, %x
  %mid1 = add i64 %mid, 1
  %lo1 = select i1 %le, i64 %mid1, i64 %lo
  %hi1 = select i1 %le, i64 %hi, i64 %mid
  br label %search
found:
  %none = icmp eq i64 %lo, 0
  br i1 %none, label %bad, label %range
range:
  %k = sub i64 %lo, 1
  %bp = getelementptr i64, ptr %starts, i64 %k
  %base = load i64, ptr %bp
  %ep = getelementptr i64, ptr %ends, i64 %k
  %end = load i64, ptr %ep
  %after = sub i64 %end, %low
  %fits = icmp ult i64 %x, %after
  br i1 %fits, label %aligned, label %bad
aligned:
  %remainder = and i64 %x, %low
  %ok = icmp eq i64 %remainder, 0
  br i1 %ok, label %next, label %odd
next:
  %room = sub i64 %after, %base
  store i64 %base, ptr %cache
  %cache1 = getelementptr i64, ptr %cache, i64 1
  store i64 %room, ptr %cache1
  %minus = sub i32 %rest, 1
  %rest1 = and i32 %rest, %minus
  br label %loop
bad:
  call void @fault(ptr %ctx, i32 {layout.ILLEGAL_GLOBAL}, i32 %function, i32 %pc, i32 %l, i32 %size, i64 %x)
  ret i1 true
odd:
  call void @fault(ptr %ctx, i32 {layout.MISALIGNED}, i32 %function, i32 %pc, i32 %l, i32 %size, i64 %x)
  ret i1 true
good:
  ret i1 false
}}

{access_rules.SUPPORT_FUNCTIONS}
declare i32 @llvm.cttz.i32(i32, i1)
declare i32 @llvm.ctpop.i32(i32)
declare i32 @llvm.umax.i32(i32, i32)
declare i32 @llvm.umin.i32(i32, i32)
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.ctpop.i64(i64)
declare i32 @llvm.vector.reduce.umin.v32i32(<32 x i32>)
declare i32 @llvm.vector.reduce.umax.v32i32(<32 x i32>)
declare i32 @llvm.vector.reduce.umax.v8i32(<8 x i32>)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""
