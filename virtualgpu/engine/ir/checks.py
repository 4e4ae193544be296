"""LLVM IR functions that check bounds and alignment of memory accesses, and count them.

Each is generated for one access size on demand and never inlined, so that a kernel's own code stays
small and compiles fast.
"""

from __future__ import annotations

from virtualgpu.engine.ir import access_rules, layout
from virtualgpu.engine.ir.text import LANE_INDICES, make_field_load, make_splat
from virtualgpu.records.access import ATOMIC_RULES, Rule


def make_counter_address(site: str) -> str:
    """Return LLVM text that computes the address ``%cnt`` of a memory instruction's counters."""
    return make_field_load("access_counters", "%cnt.i") + (
        f"  %cnt.at = mul i32 {site}, {layout.ACCESS_STRIDE}\n"
        "  %cnt.b = inttoptr i64 %cnt.i to ptr\n"
        "  %cnt = getelementptr i8, ptr %cnt.b, i32 %cnt.at\n"
    )


def make_global_check(size: int, counts_sectors: bool, access_rule: Rule = "load") -> tuple[str, str]:
    """Return the LLVM function that checks an access of `size` bytes to global memory and counts its sectors."""
    access_prefix = ""
    if access_rule in ATOMIC_RULES:
        access_prefix = "atomic_"
    elif access_rule == "store":
        access_prefix = "store_"
    name = f"check_global_{access_prefix}{size}"
    counting_text = make_counter_address("%site") + (
        f"  call void @count_{access_prefix}sectors(ptr %ctx, ptr %cnt, <32 x i64> %a, i32 %mask)\n"
    )
    llvm_text = f"""
define internal i1 @{name}(ptr %ctx, <32 x i64> %a, i32 %mask, i32 %function, i32 %pc, i32 %site) noinline {{
entry:
  %idle = icmp eq i32 %mask, 0
  br i1 %idle, label %good, label %check
check:
{make_field_load("access_cache", "%cache.i")}
  %cache.b = inttoptr i64 %cache.i to ptr
  %at = mul i32 %site, 16
  %cache = getelementptr i8, ptr %cache.b, i32 %at
  %base = load i64, ptr %cache
  %room.p = getelementptr i64, ptr %cache, i64 1
  %room = load i64, ptr %room.p
{make_splat("i64", "%base", "%bases")}{make_splat("i64", "%room", "%rooms")}
  %d = sub <32 x i64> %a, %bases
  %far = icmp uge <32 x i64> %d, %rooms
  %low = and <32 x i64> %a, splat (i64 {size - 1})
  %odd = icmp ne <32 x i64> %low, zeroinitializer
  %wrong = or <32 x i1> %far, %odd
  %wrongs = bitcast <32 x i1> %wrong to i32
  %bad = and i32 %wrongs, %mask
  %some = icmp ne i32 %bad, 0
  br i1 %some, label %slow, label %inside
slow:
  %failed = call i1 @find_live(ptr %ctx, ptr %cache, <32 x i64> %a, i32 %mask, i32 %function, i32 %pc, i32 {size})
  br i1 %failed, label %fail, label %inside
fail:
  ret i1 true
inside:
{counting_text if counts_sectors else ""}  br label %good
good:
  ret i1 false
}}
"""
    return name, llvm_text


def make_shared_check(size: int, counts_passes: bool, access_rule: Rule = "load") -> tuple[str, str]:
    """Return the LLVM function that checks an access of `size` bytes to shared memory and counts its bank
    passes.

    Addresses are offsets.
    """
    if size <= 4 and access_rule in ("store", "count"):
        access_rule = "load"  # the same passes
    name = f"check_shared_{size}_{access_rule}"
    counting_text = (
        make_counter_address("%site") + access_rules.make_shared_counting(size, access_rule)
        if counts_passes
        else ""
    )
    llvm_text = f"""
define internal i1 @{name}(ptr %ctx, <32 x i32> %a, i32 %mask, i32 %function, i32 %pc, i32 %site) noinline {{
entry:
  %idle = icmp eq i32 %mask, 0
  br i1 %idle, label %good, label %check
check:
{make_field_load("shared_bytes", "%limit64")}
  %limit.t = trunc i64 %limit64 to i32
  %limit = sub i32 %limit.t, {size}
{make_splat("i32", "%limit", "%limits")}
  %far = icmp sgt <32 x i32> %a, %limits
  %neg = icmp slt <32 x i32> %a, zeroinitializer
  %out = or <32 x i1> %far, %neg
  %low = and <32 x i32> %a, splat (i32 {size - 1})
  %odd = icmp ne <32 x i32> %low, zeroinitializer
  %wrong = or <32 x i1> %out, %odd
  %wrongs = bitcast <32 x i1> %wrong to i32
  %bad = and i32 %wrongs, %mask
  %some = icmp ne i32 %bad, 0
  br i1 %some, label %fail, label %inside
fail:
  %l = call i32 @llvm.cttz.i32(i32 %bad, i1 false)
  %outs = bitcast <32 x i1> %out to i32
  %bit = shl i32 1, %l
  %isout.b = and i32 %outs, %bit
  %isout = icmp ne i32 %isout.b, 0
  %code = select i1 %isout, i32 {layout.ILLEGAL_SHARED}, i32 {layout.MISALIGNED}
  %x = extractelement <32 x i32> %a, i32 %l
  %x64 = zext i32 %x to i64
  call void @fault(ptr %ctx, i32 %code, i32 %function, i32 %pc, i32 %l, i32 {size}, i64 %x64)
  ret i1 true
inside:
{counting_text}  br label %good
good:
  ret i1 false
}}
"""
    return name, llvm_text


def make_local_check(size: int, counts_sectors: bool, access_rule: Rule = "load") -> tuple[str, str]:
    """Return the LLVM function that checks an access of `size` bytes to local memory and counts its sectors.

    The addresses are offsets in a thread's stack.

    Local memory is interleaved on hardware: the same 4-byte word of 32 lanes is contiguous. No two
    lanes meet there, so all rules are the same.
    """
    name = f"check_local_{size}"
    counting_text = ""
    if counts_sectors:
        counting_text = make_counter_address("%site") + (
            "  %word = lshr <32 x i64> %a, splat (i64 2)\n"
            "  %row = mul <32 x i64> %word, splat (i64 128)\n"
            f"  %col = mul <32 x i64> {LANE_INDICES}, splat (i64 {max(size, 4)})\n"
            "  %offset = add <32 x i64> %row, %col\n"
            + make_field_load("l1_base", "%first")
            + make_splat("i64", "%first", "%firsts")
            + "  %place = add <32 x i64> %offset, %firsts\n"
            "  call void @count_sectors(ptr %ctx, ptr %cnt, <32 x i64> %place, i32 %mask)\n"
        )
    llvm_text = f"""
define internal i1 @{name}(ptr %ctx, <32 x i64> %a, i32 %mask, i32 %function, i32 %pc, i32 %site) noinline {{
entry:
  %idle = icmp eq i32 %mask, 0
  br i1 %idle, label %good, label %check
check:
{make_field_load("local_bytes", "%room")}
  %limit = sub i64 %room, {size}
{make_splat("i64", "%limit", "%limits")}
  %far = icmp sgt <32 x i64> %a, %limits
  %neg = icmp slt <32 x i64> %a, zeroinitializer
  %out = or <32 x i1> %far, %neg
  %low = and <32 x i64> %a, splat (i64 {size - 1})
  %odd = icmp ne <32 x i64> %low, zeroinitializer
  %wrong = or <32 x i1> %out, %odd
  %wrongs = bitcast <32 x i1> %wrong to i32
  %bad = and i32 %wrongs, %mask
  %some = icmp ne i32 %bad, 0
  br i1 %some, label %fail, label %inside
fail:
  %l = call i32 @llvm.cttz.i32(i32 %bad, i1 false)
  %outs = bitcast <32 x i1> %out to i32
  %bit = shl i32 1, %l
  %isout.b = and i32 %outs, %bit
  %isout = icmp ne i32 %isout.b, 0
  %code = select i1 %isout, i32 {layout.ILLEGAL_LOCAL}, i32 {layout.MISALIGNED}
  %x = extractelement <32 x i64> %a, i32 %l
  call void @fault(ptr %ctx, i32 %code, i32 %function, i32 %pc, i32 %l, i32 {size}, i64 %x)
  ret i1 true
inside:
{counting_text}  br label %good
good:
  ret i1 false
}}
"""
    return name, llvm_text
