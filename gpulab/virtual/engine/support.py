"""Support functions that generated code calls, as LLVM IR: checks, counters, gathers, atomics.

Each is generated for one size or type on demand and never inlined, so that a kernel's own code
stays small and compiles fast.
"""

from __future__ import annotations

from gpulab.virtual.engine import layout
from gpulab.virtual.engine.emit import INTRINSIC_SUFFIX, bits

_V = "<32 x i64>"
_IOTA = "<" + ", ".join(f"i64 {lane}" for lane in range(32)) + ">"


def _splat(llvm: str, scalar: str, result: str) -> str:
    return (
        f"  {result}.s = insertelement <32 x {llvm}> poison, {llvm} {scalar}, i32 0\n"
        f"  {result} = shufflevector <32 x {llvm}> {result}.s, <32 x {llvm}> poison, "
        f"<32 x i32> zeroinitializer\n"
    )


def _field(name: str, result: str) -> str:
    return f"  {result} = getelementptr i8, ptr %ctx, i64 {layout.offset(name)}\n"


def _load_field(name: str, result: str) -> str:
    return _field(name, f"{result}.p") + f"  {result} = load {layout.llvm_type(name)}, ptr {result}.p\n"


def _bump(pointer: str, amount: str, tag: str) -> str:
    return (
        f"  %{tag}.o = load i64, ptr {pointer}\n"
        f"  %{tag}.n = add i64 %{tag}.o, {amount}\n"
        f"  store i64 %{tag}.n, ptr {pointer}\n"
    )


COMMON = f"""
define internal void @fault(ptr %ctx, i32 %code, i32 %function, i32 %pc, i32 %lane, i32 %size, i64 %address) noinline cold {{
  %p0 = getelementptr i8, ptr %ctx, i64 {layout.offset("fault_code")}
  %old = load i32, ptr %p0
  %first = icmp eq i32 %old, 0
  br i1 %first, label %set, label %done
set:
  store i32 %code, ptr %p0
  %p1 = getelementptr i8, ptr %ctx, i64 {layout.offset("fault_function")}
  store i32 %function, ptr %p1
  %p2 = getelementptr i8, ptr %ctx, i64 {layout.offset("fault_pc")}
  store i32 %pc, ptr %p2
  %p3 = getelementptr i8, ptr %ctx, i64 {layout.offset("fault_lane")}
  store i32 %lane, ptr %p3
  %p4 = getelementptr i8, ptr %ctx, i64 {layout.offset("fault_size")}
  store i32 %size, ptr %p4
  %p5 = getelementptr i8, ptr %ctx, i64 {layout.offset("fault_address")}
  store i64 %address, ptr %p5
  br label %done
done:
  ret void
}}

define internal i1 @find_live(ptr %ctx, ptr %cache, <32 x i64> %a, i32 %mask, i32 %function, i32 %pc, i32 %size) noinline {{
entry:
{_load_field("live_starts", "%starts.i")}{_load_field("live_ends", "%ends.i")}{_load_field("live_count", "%n")}
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
  %last = add i64 %x, %size64
  %fits = icmp ule i64 %last, %end
  br i1 %fits, label %aligned, label %bad
aligned:
  %remainder = and i64 %x, %low
  %ok = icmp eq i64 %remainder, 0
  br i1 %ok, label %next, label %odd
next:
  %room = sub i64 %end, %base
  %limit = sub i64 %room, %size64
  store i64 %base, ptr %cache
  %cache1 = getelementptr i64, ptr %cache, i64 1
  store i64 %limit, ptr %cache1
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

define internal void @count_sectors(ptr %ctx, ptr %counters, <32 x i64> %a, i32 %mask) noinline {{
entry:
{_bump("%counters", "1", "req")}
  %pop = call i32 @llvm.ctpop.i32(i32 %mask)
  %pop64 = zext i32 %pop to i64
  %lanes = getelementptr i64, ptr %counters, i64 4
{_bump("%lanes", "%pop64", "lan")}
  %q = lshr <32 x i64> %a, splat (i64 5)
  %full = icmp eq i32 %mask, -1
  br i1 %full, label %fast, label %slow
fast:
  %prev = shufflevector <32 x i64> %q, <32 x i64> poison, <32 x i32> <i32 0, {", ".join(f"i32 {k}" for k in range(31))}>
  %down = icmp ult <32 x i64> %q, %prev
  %downs = bitcast <32 x i1> %down to i32
  %sorted = icmp eq i32 %downs, 0
  br i1 %sorted, label %runs, label %slow
runs:
  %differ = icmp ne <32 x i64> %q, %prev
  %differs = bitcast <32 x i1> %differ to i32
  %changes = call i32 @llvm.ctpop.i32(i32 %differs)
  %count.f = add i32 %changes, 1
  br label %done
slow:
  %spill = alloca <32 x i64>
  store <32 x i64> %q, ptr %spill
  br label %loop
loop:
  %rest = phi i32 [%mask, %slow], [%rest1, %body]
  %count = phi i32 [0, %slow], [%count1, %body]
  %over = icmp eq i32 %rest, 0
  br i1 %over, label %done, label %body
body:
  %l = call i32 @llvm.cttz.i32(i32 %rest, i1 false)
  %xp = getelementptr i64, ptr %spill, i32 %l
  %x = load i64, ptr %xp
{_splat("i64", "%x", "%same")}
  %eq = icmp eq <32 x i64> %q, %same
  %eqs = bitcast <32 x i1> %eq to i32
  %others = xor i32 %eqs, -1
  %rest1 = and i32 %rest, %others
  %count1 = add i32 %count, 1
  br label %loop
done:
  %total = phi i32 [%count.f, %runs], [%count, %loop]
  %total64 = zext i32 %total to i64
  %sectors = getelementptr i64, ptr %counters, i64 1
{_bump("%sectors", "%total64", "sec")}{_field("sectors", "%tot")}{_bump("%tot", "%total64", "all")}
  ret void
}}

define internal i32 @bank_passes(<32 x i32> %unit, i32 %mask, i32 %words) noinline {{
entry:
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %empty, label %start
empty:
  ret i32 0
start:
  %table = alloca [32 x i32]
  %spill = alloca <32 x i32>
  store <32 x i32> %unit, ptr %spill
  call void @llvm.memset.p0.i64(ptr %table, i8 0, i64 128, i1 false)
  br label %loop
loop:
  %rest = phi i32 [%mask, %start], [%rest1, %banked]
  %most = phi i32 [0, %start], [%most1, %banked]
  %over = icmp eq i32 %rest, 0
  br i1 %over, label %done, label %body
body:
  %l = call i32 @llvm.cttz.i32(i32 %rest, i1 false)
  %xp = getelementptr i32, ptr %spill, i32 %l
  %x = load i32, ptr %xp
{_splat("i32", "%x", "%same")}
  %eq = icmp eq <32 x i32> %unit, %same
  %eqs = bitcast <32 x i1> %eq to i32
  %others = xor i32 %eqs, -1
  %rest1 = and i32 %rest, %others
  %word0 = mul i32 %x, %words
  br label %bank
bank:
  %k = phi i32 [0, %body], [%k1, %bank]
  %high = phi i32 [%most, %body], [%high1, %bank]
  %word = add i32 %word0, %k
  %b = and i32 %word, 31
  %cp = getelementptr i32, ptr %table, i32 %b
  %old = load i32, ptr %cp
  %new = add i32 %old, 1
  store i32 %new, ptr %cp
  %high1 = call i32 @llvm.umax.i32(i32 %high, i32 %new)
  %k1 = add i32 %k, 1
  %again = icmp ult i32 %k1, %words
  br i1 %again, label %bank, label %banked
banked:
  %most1 = phi i32 [%high1, %bank]
  br label %loop
done:
  ret i32 %most
}}

declare i32 @llvm.cttz.i32(i32, i1)
declare i32 @llvm.ctpop.i32(i32)
declare i32 @llvm.umax.i32(i32, i32)
declare i64 @llvm.umax.i64(i64, i64)
declare i32 @llvm.vector.reduce.umin.v32i32(<32 x i32>)
declare i32 @llvm.vector.reduce.umax.v32i32(<32 x i32>)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""


def _counters(site: str) -> str:
    return _load_field("access_counters", "%cnt.i") + (
        f"  %cnt.at = mul i32 {site}, {layout.ACCESS_STRIDE}\n"
        "  %cnt.b = inttoptr i64 %cnt.i to ptr\n"
        "  %cnt = getelementptr i8, ptr %cnt.b, i32 %cnt.at\n"
    )


def check_global(size: int, count: bool) -> tuple[str, str]:
    """Bounds, alignment and sector counting of one global access of `size` bytes a lane."""
    name = f"check_global_{size}"
    counting = (
        _counters("%site") + "  call void @count_sectors(ptr %ctx, ptr %cnt, <32 x i64> %a, i32 %mask)\n"
    )
    body = f"""
define internal i1 @{name}(ptr %ctx, <32 x i64> %a, i32 %mask, i32 %function, i32 %pc, i32 %site) noinline {{
entry:
  %idle = icmp eq i32 %mask, 0
  br i1 %idle, label %good, label %check
check:
{_load_field("access_cache", "%cache.i")}
  %cache.b = inttoptr i64 %cache.i to ptr
  %at = mul i32 %site, 16
  %cache = getelementptr i8, ptr %cache.b, i32 %at
  %base = load i64, ptr %cache
  %limit.p = getelementptr i64, ptr %cache, i64 1
  %limit = load i64, ptr %limit.p
{_splat("i64", "%base", "%bases")}{_splat("i64", "%limit", "%limits")}
  %d = sub <32 x i64> %a, %bases
  %far = icmp ugt <32 x i64> %d, %limits
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
{counting if count else ""}  br label %good
good:
  ret i1 false
}}
"""
    return name, body


def check_shared(size: int, count: bool) -> tuple[str, str]:
    """Bounds, alignment and bank passes of one shared access; addresses are offsets."""
    name = f"check_shared_{size}"
    words = max(1, size // 4)
    shift = (max(size, 4)).bit_length() - 1
    groups = 1 if words == 1 else words
    passes = ""
    lanes = 32 // groups
    if count:
        passes = _counters("%site") + _bump("%cnt", "1", "req")
        passes += "  %pop = call i32 @llvm.ctpop.i32(i32 %mask)\n  %pop64 = zext i32 %pop to i64\n"
        passes += "  %cnt.l = getelementptr i64, ptr %cnt, i64 4\n" + _bump("%cnt.l", "%pop64", "lan")
        passes += f"  %unit = lshr <32 x i32> %a, splat (i32 {shift})\n"
        if groups == 1:
            passes += """  %act = bitcast i32 %mask to <32 x i1>
  %hi = select <32 x i1> %act, <32 x i32> %unit, <32 x i32> zeroinitializer
  %lo = select <32 x i1> %act, <32 x i32> %unit, <32 x i32> splat (i32 -1)
  %max = call i32 @llvm.vector.reduce.umax.v32i32(<32 x i32> %hi)
  %min = call i32 @llvm.vector.reduce.umin.v32i32(<32 x i32> %lo)
  %span = sub i32 %max, %min
  %near = icmp ult i32 %span, 32
  br i1 %near, label %counted, label %banks
banks:
  %many = call i32 @bank_passes(<32 x i32> %unit, i32 %mask, i32 1)
  br label %counted
counted:
  %waves = phi i32 [1, %inside], [%many, %banks]
  %ideal = add i32 0, 1
"""
        else:
            total, ideal = "0", "0"
            for g in range(groups):
                part = ((1 << lanes) - 1) << (g * lanes)
                part = part - (1 << 32) if part >> 31 else part
                passes += f"  %part{g} = and i32 %mask, {part}\n"
                passes += f"  %w{g} = call i32 @bank_passes(<32 x i32> %unit, i32 %part{g}, i32 {words})\n"
                passes += f"  %tot{g} = add i32 {total}, %w{g}\n"
                passes += f"  %any{g} = icmp ne i32 %part{g}, 0\n  %one{g} = zext i1 %any{g} to i32\n"
                passes += f"  %ide{g} = add i32 {ideal}, %one{g}\n"
                total, ideal = f"%tot{g}", f"%ide{g}"
            passes += f"  %waves = add i32 0, {total}\n  %ideal = add i32 0, {ideal}\n"
        passes += "  %waves64 = zext i32 %waves to i64\n  %ideal64 = zext i32 %ideal to i64\n"
        passes += "  %cnt.w = getelementptr i64, ptr %cnt, i64 2\n" + _bump("%cnt.w", "%waves64", "wav")
        passes += "  %cnt.d = getelementptr i64, ptr %cnt, i64 3\n" + _bump("%cnt.d", "%ideal64", "ide")
        passes += _field("wavefronts", "%tot") + _bump("%tot", "%waves64", "all")
    body = f"""
define internal i1 @{name}(ptr %ctx, <32 x i32> %a, i32 %mask, i32 %function, i32 %pc, i32 %site) noinline {{
entry:
  %idle = icmp eq i32 %mask, 0
  br i1 %idle, label %good, label %check
check:
{_load_field("shared_bytes", "%limit64")}
  %limit.t = trunc i64 %limit64 to i32
  %limit = sub i32 %limit.t, {size}
{_splat("i32", "%limit", "%limits")}
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
{passes}  br label %good
good:
  ret i1 false
}}
"""
    return name, body


def check_local(size: int, count: bool) -> tuple[str, str]:
    """Bounds, alignment and sectors of one local access; addresses are offsets in a thread's stack.

    Local memory is interleaved on hardware: the same 4-byte word of 32 lanes is contiguous.
    """
    name = f"check_local_{size}"
    counting = ""
    if count:
        counting = _counters("%site") + (
            "  %word = lshr <32 x i64> %a, splat (i64 2)\n"
            "  %row = mul <32 x i64> %word, splat (i64 128)\n"
            f"  %col = mul <32 x i64> {_IOTA}, splat (i64 {max(size, 4)})\n"
            "  %place = add <32 x i64> %row, %col\n"
            "  call void @count_sectors(ptr %ctx, ptr %cnt, <32 x i64> %place, i32 %mask)\n"
        )
    body = f"""
define internal i1 @{name}(ptr %ctx, <32 x i64> %a, i32 %mask, i32 %function, i32 %pc, i32 %site) noinline {{
entry:
  %idle = icmp eq i32 %mask, 0
  br i1 %idle, label %good, label %check
check:
{_load_field("local_bytes", "%room")}
  %limit = sub i64 %room, {size}
{_splat("i64", "%limit", "%limits")}
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
{counting}  br label %good
good:
  ret i1 false
}}
"""
    return name, body


def gather(llvm: str) -> tuple[str, str]:
    """Load one value a lane from host addresses; contiguous full warps load as one vector."""
    name, size = f"gather_{llvm}", bits(llvm) // 8
    vector = f"<32 x {llvm}>"
    offsets = "<" + ", ".join(f"i64 {size * lane}" for lane in range(32)) + ">"
    intrinsic = f"llvm.masked.gather.v32{llvm}.v32p0"
    body = f"""
declare {vector} @{intrinsic}(<32 x ptr>, <32 x i1>, {vector})
define internal {vector} @{name}(<32 x i64> %a, i32 %mask) noinline {{
entry:
  %a0 = extractelement <32 x i64> %a, i32 0
{_splat("i64", "%a0", "%first")}
  %line = add <32 x i64> %first, {offsets}
  %same = icmp eq <32 x i64> %a, %line
  %sames = bitcast <32 x i1> %same to i32
  %both = and i32 %sames, %mask
  %straight = icmp eq i32 %both, -1
  br i1 %straight, label %fast, label %slow
fast:
  %p = inttoptr i64 %a0 to ptr
  %v = load {vector}, ptr %p, align {size}
  ret {vector} %v
slow:
  %ps = inttoptr <32 x i64> %a to <32 x ptr>
  %m = bitcast i32 %mask to <32 x i1>
  %g = call {vector} @{intrinsic}(<32 x ptr> align {size} %ps, <32 x i1> %m, {vector} zeroinitializer)
  ret {vector} %g
}}
"""
    return name, body


def scatter(llvm: str) -> tuple[str, str]:
    """Store one value a lane to host addresses; of lanes that collide the highest wins."""
    name, size = f"scatter_{llvm}", bits(llvm) // 8
    vector = f"<32 x {llvm}>"
    offsets = "<" + ", ".join(f"i64 {size * lane}" for lane in range(32)) + ">"
    intrinsic = f"llvm.masked.scatter.v32{llvm}.v32p0"
    body = f"""
declare void @{intrinsic}({vector}, <32 x ptr>, <32 x i1>)
define internal void @{name}({vector} %v, <32 x i64> %a, i32 %mask) noinline {{
entry:
  %a0 = extractelement <32 x i64> %a, i32 0
{_splat("i64", "%a0", "%first")}
  %line = add <32 x i64> %first, {offsets}
  %same = icmp eq <32 x i64> %a, %line
  %sames = bitcast <32 x i1> %same to i32
  %both = and i32 %sames, %mask
  %straight = icmp eq i32 %both, -1
  br i1 %straight, label %fast, label %slow
fast:
  %p = inttoptr i64 %a0 to ptr
  store {vector} %v, ptr %p, align {size}
  ret void
slow:
  %ps = inttoptr <32 x i64> %a to <32 x ptr>
  %m = bitcast i32 %mask to <32 x i1>
  call void @{intrinsic}({vector} %v, <32 x ptr> align {size} %ps, <32 x i1> %m)
  ret void
}}
"""
    return name, body


_ATOMIC = {
    "add": "add", "and": "and", "or": "or", "xor": "xor", "exch": "xchg",
    "inc": "uinc_wrap", "dec": "udec_wrap",
}  # fmt: skip


def atomic(operation: str, llvm: str, is_signed: bool) -> tuple[str, str]:
    """One read-modify-write a lane, in lane order; gives the old values."""
    name = f"atomic_{operation}_{'s' if is_signed else 'u'}_{llvm}"
    vector, size = f"<32 x {llvm}>", bits(llvm) // 8
    if operation == "cas":
        act = (
            f"  %pair = cmpxchg ptr %p, {llvm} %x, {llvm} %y seq_cst seq_cst, align {size}\n"
            f"  %old = extractvalue {{{llvm}, i1}} %pair, 0\n"
        )
    else:
        if operation in ("min", "max"):
            verb = operation if is_signed else "u" + operation
        else:
            verb = _ATOMIC[operation]
        if llvm in INTRINSIC_SUFFIX:
            verb = "fadd" if verb == "add" else verb
        act = f"  %old = atomicrmw {verb} ptr %p, {llvm} %x seq_cst, align {size}\n"
    body = f"""
define internal {vector} @{name}(<32 x i64> %a, i32 %mask, {vector} %b, {vector} %c) noinline {{
entry:
  %as = alloca <32 x i64>
  %bs = alloca {vector}
  %cs = alloca {vector}
  %os = alloca {vector}
  store <32 x i64> %a, ptr %as
  store {vector} %b, ptr %bs
  store {vector} %c, ptr %cs
  store {vector} zeroinitializer, ptr %os
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
  %xp = getelementptr {llvm}, ptr %bs, i32 %l
  %x = load {llvm}, ptr %xp
  %yp = getelementptr {llvm}, ptr %cs, i32 %l
  %y = load {llvm}, ptr %yp
{act}  %op = getelementptr {llvm}, ptr %os, i32 %l
  store {llvm} %old, ptr %op
  %minus = sub i32 %rest, 1
  %rest1 = and i32 %rest, %minus
  br label %loop
done:
  %r = load {vector}, ptr %os
  ret {vector} %r
}}
"""
    return name, body


def permute(llvm: str) -> tuple[str, str]:
    """Value of lane ``index[l]`` for every lane l."""
    name, vector = f"permute_{llvm}", f"<32 x {llvm}>"
    suffix = INTRINSIC_SUFFIX.get(llvm, llvm)
    intrinsic = f"llvm.masked.gather.v32{suffix}.v32p0"
    body = f"""
declare {vector} @{intrinsic}(<32 x ptr>, <32 x i1>, {vector})
define internal {vector} @{name}({vector} %v, <32 x i32> %index) noinline {{
  %spill = alloca {vector}
  store {vector} %v, ptr %spill
  %ps = getelementptr {llvm}, ptr %spill, <32 x i32> %index
  %g = call {vector} @{intrinsic}(<32 x ptr> align {bits(llvm) // 8} %ps, <32 x i1> splat (i1 true), {vector} zeroinitializer)
  ret {vector} %g
}}
"""
    return name, body


TRACE = f"""
define internal void @trace_step(ptr %ctx, i32 %function, i32 %pc, i32 %active, i32 %executed) noinline {{
entry:
{_load_field("trace_on", "%on")}
  %is = icmp ne i32 %on, 0
  br i1 %is, label %room, label %skip
room:
{_load_field("trace_cursor", "%at")}{_load_field("trace_end", "%end")}
  %next = add i64 %at, {layout.TRACE_STEP.itemsize}
  %full = icmp ugt i64 %next, %end
  br i1 %full, label %cut, label %write
cut:
{_field("trace_on", "%on.q")}
  store i32 0, ptr %on.q
{_field("truncated", "%cut.q")}
  store i32 1, ptr %cut.q
{_field("trace_record", "%rec.z")}
  store i64 0, ptr %rec.z
  ret void
write:
{_field("trace_cursor", "%at.q")}
  store i64 %next, ptr %at.q
{_field("trace_record", "%rec.q")}
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
{_load_field("trace_on", "%on")}{_load_field("trace_record", "%rec")}
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
        name: _field(name, f"%{name}.p")
        for name in ("ctaid_x", "ctaid_y", "ctaid_z", "warp", "block_linear", "trace_on", "local_base",
                     "clock", "sectors", "wavefronts", "exited")
    }  # fmt: skip
    loads = "".join(
        _load_field(name, f"%{name}")
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
{_splat("i32", "%present", "%presents")}
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
