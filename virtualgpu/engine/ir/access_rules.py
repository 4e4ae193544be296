"""LLVM IR that computes the cost of one memory access of a warp for the counters.

See the rules in `virtualgpu.records.access`.
"""

from __future__ import annotations

from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.text import make_field_load, make_field_pointer, make_memory_add, make_splat
from virtualgpu.records.access import Rule


def make_shared_counting(size: int, access_rule: Rule) -> str:
    """Return LLVM text that counts an access to shared memory. The lanes in ``%mask`` access the offsets in
    ``%a``.

    The text ends at the label ``counted``.

    It follows a block called ``inside`` and needs ``%cnt``, the counters of the instruction.
    """
    words_per_lane = max(1, size // 4)
    size_log2 = max(size, 4).bit_length() - 1
    llvm_text = make_memory_add("%cnt", "1", "req")
    llvm_text += "  %pop = call i32 @llvm.ctpop.i32(i32 %mask)\n  %pop64 = zext i32 %pop to i64\n"
    llvm_text += "  %cnt.l = getelementptr i64, ptr %cnt, i64 4\n" + make_memory_add(
        "%cnt.l", "%pop64", "lan"
    )
    llvm_text += f"  %unit = lshr <32 x i32> %a, splat (i32 {size_log2})\n"
    if words_per_lane == 1 and access_rule not in ("atomic", "swap"):
        llvm_text += """  %act = bitcast i32 %mask to <32 x i1>
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
        pass_count_function = "bank_lanes" if access_rule in ("atomic", "swap") else "bank_passes"
        extra_waves = "0"
        if access_rule == "load":
            llvm_text += "  %agree = call i1 @neighbours_agree(<32 x i32> %unit, i32 %mask)\n"
            llvm_text += "  %wide = zext i1 %agree to i32\n"
            extra_waves = "%wide"
        llvm_text += f"""  %lanes = shl i32 {32 // words_per_lane}, {extra_waves}
  br label %loop
loop:
  %start = phi i32 [0, %inside], [%start1, %loop]
  %sum = phi i32 [0, %inside], [%sum1, %loop]
  %parts = phi i32 [0, %inside], [%parts1, %loop]
  %all = icmp eq i32 %lanes, 32
  %count.1 = shl i32 1, %lanes
  %count.ones = sub i32 %count.1, 1
  %group0 = select i1 %all, i32 -1, i32 %count.ones
  %group = shl i32 %group0, %start
  %part = and i32 %mask, %group
  %passes = call i32 @{pass_count_function}(<32 x i32> %unit, i32 %part, i32 {words_per_lane})
  %sum1 = add i32 %sum, %passes
  %any = icmp ne i32 %part, 0
  %any32 = zext i1 %any to i32
  %parts1 = add i32 %parts, %any32
  %start1 = add i32 %start, %lanes
  %again = icmp ult i32 %start1, 32
  br i1 %again, label %loop, label %counted
counted:
"""
        if access_rule == "swap":
            llvm_text += "  %waves = shl i32 %sum1, 1\n  %ideal = add i32 %sum1, %parts1\n"
        else:
            llvm_text += "  %waves = add i32 %sum1, 0\n  %ideal = add i32 %parts1, 0\n"
    llvm_text += "  %waves64 = zext i32 %waves to i64\n  %ideal64 = zext i32 %ideal to i64\n"
    llvm_text += "  %cnt.w = getelementptr i64, ptr %cnt, i64 2\n" + make_memory_add(
        "%cnt.w", "%waves64", "wav"
    )
    llvm_text += "  %cnt.d = getelementptr i64, ptr %cnt, i64 3\n" + make_memory_add(
        "%cnt.d", "%ideal64", "ide"
    )
    return llvm_text + make_field_pointer("wavefronts", "%tot") + make_memory_add("%tot", "%waves64", "all")


def _make_bit_swap(step: int, lower_bits: int) -> str:
    """Return LLVM text that compares each lane with the lane at distance `step`, if both are in the mask."""
    lane_order = ", ".join(f"i32 {lane ^ step}" for lane in range(32))
    return f"""  %up{step}.0 = and i32 %mask, {lower_bits}
  %up{step} = shl i32 %up{step}.0, {step}
  %down{step}.0 = lshr i32 %mask, {step}
  %down{step} = and i32 %down{step}.0, {lower_bits}
  %other{step} = or i32 %up{step}, %down{step}
  %both{step} = and i32 %mask, %other{step}
  %near{step} = shufflevector <32 x i32> %unit, <32 x i32> poison, <32 x i32> <{lane_order}>
  %differ{step}.0 = icmp ne <32 x i32> %unit, %near{step}
  %differ{step} = bitcast <32 x i1> %differ{step}.0 to i32
  %wrong{step} = and i32 %differ{step}, %both{step}
  %agree{step} = icmp eq i32 %wrong{step}, 0
"""


def make_l1_lookup(sector: str, tag: str, sector_mask: str = "1") -> str:
    """Return LLVM text that looks up sectors in the L1 model and inserts missing ones.

    The string `sector_mask` has one bit per sector, and bit 0 is the sector `sector`. ``%missed.<tag>`` is the
    number of those that were not valid.

    Positions count from the device's first address, so that the same program always has the same hits. The
    table is direct-mapped. An entry contains a line of 128 bytes that the current block has touched, and the
    valid sectors of the line in its lowest four bits. Entries of another block do not match, because the
    block number is part of an entry.
    """
    return f"""  %place.{tag} = sub i64 {sector}, %l1.first
  %line.{tag} = lshr i64 %place.{tag}, 2
  %low.{tag} = and i64 %line.{tag}, {(1 << layout.L1_LINE_BITS) - 1}
  %scaled.{tag} = mul i64 %low.{tag}, %l1.inverse
  %quotient.{tag} = lshr i64 %scaled.{tag}, {layout.L1_INVERSE_BITS}
  %whole.{tag} = mul i64 %quotient.{tag}, %l1.slots
  %slot.{tag} = sub i64 %low.{tag}, %whole.{tag}
  %entry.{tag} = getelementptr i64, ptr %l1.t, i64 %slot.{tag}
  %shifted.{tag} = shl i64 %line.{tag}, 4
  %mark.{tag} = xor i64 %shifted.{tag}, %epoch
  %kept.{tag} = load i64, ptr %entry.{tag}
  %differs.{tag} = xor i64 %kept.{tag}, %mark.{tag}
  %found.{tag} = icmp ult i64 %differs.{tag}, 16
  %valid.{tag} = select i1 %found.{tag}, i64 %kept.{tag}, i64 %mark.{tag}
  %index.{tag} = and i64 %place.{tag}, 3
  %bits.{tag} = shl i64 {sector_mask}, %index.{tag}
  %after.{tag} = or i64 %valid.{tag}, %bits.{tag}
  store i64 %after.{tag}, ptr %entry.{tag}
  %new.{tag} = xor i64 %valid.{tag}, %after.{tag}
  %missed.{tag} = call i64 @llvm.ctpop.i64(i64 %new.{tag})
"""


L1_FIELD_LOADS = (
    make_field_load("l1_table", "%l1.i")
    + make_field_load("block_linear", "%number")
    + make_field_load("l1_base", "%l1.from")
    + make_field_load("l1_slots", "%l1.slots")
    + make_field_load("l1_inverse", "%l1.inverse")
    + """  %l1.t = inttoptr i64 %l1.i to ptr
  %epoch = shl i64 %number, 44
  %l1.first = lshr i64 %l1.from, 5
"""
)


_FIRST_31_LANES = ", ".join(f"i32 {lane}" for lane in range(31))

_RUN_BLOCK_TEXT = f"""run:
  %runs.left = phi i32 [%firsts, %runs], [%runs.rest, %run]
  %misses.f = phi i64 [0, %runs], [%misses.f1, %run]
  %first = call i32 @llvm.cttz.i32(i32 %runs.left, i1 false)
  %first.p = getelementptr i64, ptr %spill, i32 %first
  %s = load i64, ptr %first.p
{make_l1_lookup("%s", "f")}  %misses.f1 = add i64 %misses.f, %missed.f
  %runs.minus = sub i32 %runs.left, 1
  %runs.rest = and i32 %runs.left, %runs.minus
  %runs.more = icmp ne i32 %runs.rest, 0
  br i1 %runs.more, label %run, label %done
"""

_NO_RUN_BLOCK_TEXT = """run:
  %misses.f1 = add i64 0, 0
  br label %done
"""

# An L1 cache returns a line in eight columns of 16 bytes. It returns different pieces of one column one after the
# other, so a load takes as many passes as its most used column has pieces.
_ORDERED_PASSES_TEXT = (
    f"""  %piece = lshr <32 x i64> %a, splat (i64 4)
  %piece.prev = shufflevector <32 x i64> %piece, <32 x i64> poison, <32 x i32> <i32 0, {_FIRST_31_LANES}>
  %piece.differ = icmp ne <32 x i64> %piece, %piece.prev
  %piece.differs = bitcast <32 x i1> %piece.differ to i32
  %piece.firsts = or i32 %piece.differs, 1
  %piece.count = call i32 @llvm.ctpop.i32(i32 %piece.firsts)
  %piece.up = add i32 %piece.count, 7
  %ideal.f = lshr i32 %piece.up, 3
  %column.all = trunc <32 x i64> %piece to <32 x i8>
  %column = and <32 x i8> %column.all, splat (i8 7)
"""
    + "".join(
        f"""  %in.{k} = icmp eq <32 x i8> %column, splat (i8 {k})
  %ins.{k} = bitcast <32 x i1> %in.{k} to i32
  %firsts.{k} = and i32 %ins.{k}, %piece.firsts
  %count.{k} = call i32 @llvm.ctpop.i32(i32 %firsts.{k})
  %most.{k + 1} = call i32 @llvm.umax.i32(i32 {f"%most.{k}" if k else "1"}, i32 %count.{k})
"""
        for k in range(8)
    )
    + "  %passes.f = sub i32 %most.8, %ideal.f\n"
)

_COUNT_SECTORS_TEMPLATE = f"""define internal void @NAME(ptr %ctx, ptr %counters, <32 x i64> %a, i32 %mask) noinline {{
entry:
{make_memory_add("%counters", "1", "req")}
  %pop = call i32 @llvm.ctpop.i32(i32 %mask)
  %pop64 = zext i32 %pop to i64
  %lanes = getelementptr i64, ptr %counters, i64 4
{make_memory_add("%lanes", "%pop64", "lan")}
  %q = lshr <32 x i64> %a, splat (i64 5)
  %spill = alloca <32 x i64>
  store <32 x i64> %q, ptr %spill
{L1_FIELD_LOADS}  %full = icmp eq i32 %mask, -1
  br i1 %full, label %fast, label %slow
fast:
  %prev = shufflevector <32 x i64> %q, <32 x i64> poison, <32 x i32> <i32 0, {_FIRST_31_LANES}>
  %down = icmp ult <32 x i64> %q, %prev
  %downs = bitcast <32 x i1> %down to i32
  %sorted = icmp eq i32 %downs, 0
  br i1 %sorted, label %runs, label %slow
runs:
  %differ = icmp ne <32 x i64> %q, %prev
  %differs = bitcast <32 x i1> %differ to i32
  %firsts = or i32 %differs, 1
  %count.f = call i32 @llvm.ctpop.i32(i32 %firsts)
  %half = lshr <32 x i64> %q, splat (i64 1)
  %half.prev = lshr <32 x i64> %prev, splat (i64 1)
  %half.differ = icmp ne <32 x i64> %half, %half.prev
  %half.differs = bitcast <32 x i1> %half.differ to i32
  %half.firsts = or i32 %half.differs, 1
  %halves.f = call i32 @llvm.ctpop.i32(i32 %half.firsts)
@ORDERED  br label %run
@RUNslow:
@SLOW  br label %loop
loop:
  %rest = phi i32 [%mask, %slow], [%rest1, %body]
  %count = phi i32 [0, %slow], [%count1, %body]
  %misses.s = phi i64 [0, %slow], [%misses.s1, %body]
@LOOP  %over = icmp eq i32 %rest, 0
  br i1 %over, label %done, label %body
body:
  %l = call i32 @llvm.cttz.i32(i32 %rest, i1 false)
  %xp = getelementptr i64, ptr %spill, i32 %l
  %x = load i64, ptr %xp
{make_splat("i64", "%x", "%same")}
  %eq = icmp eq <32 x i64> %q, %same
  %eqs = bitcast <32 x i1> %eq to i32
  %others = xor i32 %eqs, -1
  %rest1 = and i32 %rest, %others
  %count1 = add i32 %count, 1
@BODY@LOOK  %misses.s1 = add i64 %misses.s, %missed.s
  br label %loop
done:
  %total = phi i32 [%count.f, %run], [%count, %loop]
  %misses = phi i64 [%misses.f1, %run], [%misses.s, %loop]
  %halves = phi i32 [%halves.f, %run], [%count, %loop]
@DONE  %halves64 = zext i32 %halves to i64
  %halves.all = getelementptr i64, ptr %counters, i64 6
  %total64 = zext i32 %total to i64
  %sectors = getelementptr i64, ptr %counters, i64 1
{make_memory_add("%sectors", "%total64", "sec")}
  %missed.all = getelementptr i64, ptr %counters, i64 5
{make_memory_add("%missed.all", "%misses", "mis")}{make_memory_add("%halves.all", "%halves64", "hal")}{make_field_pointer("sectors", "%tot")}{make_memory_add("%tot", "%total64", "all")}
  ret void
}}

"""


_PASS_TEXT_BY_MARK = {
    "@ORDERED": _ORDERED_PASSES_TEXT,
    "@LOOP": "  %columns = phi i64 [0, %slow], [%columns1, %body]\n",
    "@BODY": """  %here = and i32 %eqs, %mask
  %lower = and i32 %here, %evens
  %upper = and i32 %here, %odds
  %has.lower = icmp ne i32 %lower, 0
  %has.upper = icmp ne i32 %upper, 0
  %one.lower = zext i1 %has.lower to i64
  %one.upper = select i1 %has.upper, i64 256, i64 0
  %ones = or i64 %one.lower, %one.upper
  %quarter = and i64 %x, 3
  %quarter.bits = shl i64 %quarter, 4
  %added = shl i64 %ones, %quarter.bits
  %columns1 = add i64 %columns, %added
""",
    "@SLOW": """  %odd.bits = and <32 x i64> %a, splat (i64 16)
  %odd = icmp ne <32 x i64> %odd.bits, zeroinitializer
  %odds = bitcast <32 x i1> %odd to i32
  %evens = xor i32 %odds, -1
""",
    "@DONE": f"""  %passes.o = phi i32 [%passes.f, %run], [0, %loop]
  %columns.all = phi i64 [0, %run], [%columns, %loop]
  %column.bytes = bitcast i64 %columns.all to <8 x i8>
  %column.counts = zext <8 x i8> %column.bytes to <8 x i32>
  %most.s = call i32 @llvm.vector.reduce.umax.v8i32(<8 x i32> %column.counts)
  %count.up = add i32 %total, 3
  %ideal.s = lshr i32 %count.up, 2
  %reached.s = call i32 @llvm.umax.i32(i32 %most.s, i32 %ideal.s)
  %passes.s = sub i32 %reached.s, %ideal.s
  %passes = add i32 %passes.o, %passes.s
  %passes64 = zext i32 %passes to i64
  %passes.all = getelementptr i64, ptr %counters, i64 7
{make_memory_add("%passes.all", "%passes64", "pas")}  %some = icmp ne i64 %misses, 0
  %some64 = zext i1 %some to i64
  %waits.all = getelementptr i64, ptr %counters, i64 8
{make_memory_add("%waits.all", "%some64", "wai")}""",
}


def _make_sector_counting(*, looks_up_l1: bool) -> str:
    """Return LLVM text of the function that counts the sectors of an access and, for loads, misses and passes."""
    function_text = _COUNT_SECTORS_TEMPLATE.replace(
        "@NAME", "@count_sectors" if looks_up_l1 else "@count_store_sectors"
    )
    function_text = function_text.replace("@RUN", _RUN_BLOCK_TEXT if looks_up_l1 else _NO_RUN_BLOCK_TEXT)
    function_text = function_text.replace(
        "@LOOK", make_l1_lookup("%x", "s") if looks_up_l1 else "  %missed.s = add i64 0, 0\n"
    )
    for template_mark, pass_text in _PASS_TEXT_BY_MARK.items():
        function_text = function_text.replace(template_mark, pass_text if looks_up_l1 else "")
    return function_text


# Functions that the rules call, linked into every kernel that counts.
SUPPORT_FUNCTIONS = f"""
{_make_sector_counting(looks_up_l1=True)}
{_make_sector_counting(looks_up_l1=False)}
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
{make_splat("i32", "%x", "%same")}
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

define internal i1 @neighbours_agree(<32 x i32> %unit, i32 %mask) noinline {{
{_make_bit_swap(1, 0x55555555)}{_make_bit_swap(2, 0x33333333)}  %agree = or i1 %agree1, %agree2
  ret i1 %agree
}}

define internal i32 @bank_lanes(<32 x i32> %unit, i32 %mask, i32 %words) noinline {{
entry:
  %table = alloca [32 x i32]
  %spill = alloca <32 x i32>
  store <32 x i32> %unit, ptr %spill
  call void @llvm.memset.p0.i64(ptr %table, i8 0, i64 128, i1 false)
  br label %loop
loop:
  %rest = phi i32 [%mask, %entry], [%rest1, %body]
  %most = phi i32 [0, %entry], [%most1, %body]
  %over = icmp eq i32 %rest, 0
  br i1 %over, label %done, label %body
body:
  %l = call i32 @llvm.cttz.i32(i32 %rest, i1 false)
  %xp = getelementptr i32, ptr %spill, i32 %l
  %x = load i32, ptr %xp
  %word = mul i32 %x, %words
  %b = and i32 %word, 31
  %cp = getelementptr i32, ptr %table, i32 %b
  %old = load i32, ptr %cp
  %new = add i32 %old, 1
  store i32 %new, ptr %cp
  %most1 = call i32 @llvm.umax.i32(i32 %most, i32 %new)
  %minus = sub i32 %rest, 1
  %rest1 = and i32 %rest, %minus
  br label %loop
done:
  ret i32 %most
}}

define internal void @count_atomic_sectors(ptr %ctx, ptr %counters, <32 x i64> %a, i32 %mask) noinline {{
entry:
{make_memory_add("%counters", "1", "req")}
  %pop = call i32 @llvm.ctpop.i32(i32 %mask)
  %pop64 = zext i32 %pop to i64
  %lanes = getelementptr i64, ptr %counters, i64 4
{make_memory_add("%lanes", "%pop64", "lan")}
  %q = lshr <32 x i64> %a, splat (i64 5)
  %sectors.of = alloca <32 x i64>
  store <32 x i64> %q, ptr %sectors.of
  %places.of = alloca <32 x i64>
  store <32 x i64> %a, ptr %places.of
  br label %loop
loop:
  %rest = phi i32 [%mask, %entry], [%rest1, %taken]
  %count = phi i32 [0, %entry], [%count1, %taken]
  %over = icmp eq i32 %rest, 0
  br i1 %over, label %done, label %sector
sector:
  %l = call i32 @llvm.cttz.i32(i32 %rest, i1 false)
  %xp = getelementptr i64, ptr %sectors.of, i32 %l
  %x = load i64, ptr %xp
{make_splat("i64", "%x", "%same")}
  %eq = icmp eq <32 x i64> %q, %same
  %eqs = bitcast <32 x i1> %eq to i32
  %here = and i32 %eqs, %rest
  br label %words
words:
  %left = phi i32 [%here, %sector], [%left1, %words]
  %most = phi i32 [0, %sector], [%most1, %words]
  %k = call i32 @llvm.cttz.i32(i32 %left, i1 false)
  %yp = getelementptr i64, ptr %places.of, i32 %k
  %y = load i64, ptr %yp
{make_splat("i64", "%y", "%place")}
  %at = icmp eq <32 x i64> %a, %place
  %ats = bitcast <32 x i1> %at to i32
  %want = and i32 %ats, %left
  %many = call i32 @llvm.ctpop.i32(i32 %want)
  %most1 = call i32 @llvm.umax.i32(i32 %most, i32 %many)
  %left1 = xor i32 %left, %want
  %more = icmp ne i32 %left1, 0
  br i1 %more, label %words, label %taken
taken:
  %count1 = add i32 %count, %most1
  %rest1 = xor i32 %rest, %here
  br label %loop
done:
  %total64 = zext i32 %count to i64
  %sectors = getelementptr i64, ptr %counters, i64 1
{make_memory_add("%sectors", "%total64", "sec")}{make_field_pointer("sectors", "%tot")}{make_memory_add("%tot", "%total64", "all")}
  ret void
}}
"""
