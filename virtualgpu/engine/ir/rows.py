"""LLVM IR functions for accesses in which each half warp accesses consecutive elements or one address.

Most accesses of most programs are like this, including those of tiles of 16 × 16. Other accesses go through
functions that handle each lane, which costs more: without AVX-512 the addresses of a warp fill eight
registers.
"""

from __future__ import annotations

from virtualgpu.engine.ir import access_rules, checks, layout
from virtualgpu.engine.ir.emit import get_bit_width
from virtualgpu.engine.ir.text import make_field_load, make_field_pointer, make_memory_add, make_splat

HALF_WARP_LANES = layout.LANES // 2


def make_zero_test(llvm_type: str, count: int, value: str, result: str) -> str:
    """Return LLVM text that uses one 256-bit comparison to check whether a vector is zero."""
    llvm_text = ""
    element_bits = get_bit_width(llvm_type)
    while count * element_bits > 256:
        count //= 2
        vector_type = f"<{2 * count} x {llvm_type}>"
        half_name = f"{result}.v{count}"
        for half_letter, first_lane in (("l", 0), ("h", count)):
            lane_order = _make_shuffle_order(first_lane, first_lane + count)
            llvm_text += f"  {half_name}{half_letter} = shufflevector {vector_type} {value}, {vector_type} poison, <{count} x i32> {lane_order}\n"
        llvm_text += f"  {half_name} = or <{count} x {llvm_type}> {half_name}l, {half_name}h\n"
        value = half_name
    llvm_text += f"  {result}.i = bitcast <{count} x {llvm_type}> {value} to i{count * element_bits}\n"
    return llvm_text + f"  {result} = icmp eq i{count * element_bits} {result}.i, 0\n"


def _make_shuffle_order(start: int, end: int) -> str:
    return "<" + ", ".join(f"i32 {n}" for n in range(start, end)) + ">"


def make_first_addresses(address_type: str) -> str:
    """Return LLVM text that sets ``%p0`` and ``%p1`` to the first addresses of the half warps."""
    return "".join(
        f"  %p{n} = extractelement <32 x {address_type}> %a, i32 {HALF_WARP_LANES * n}\n" for n in range(2)
    )


def _make_distances(half: int, address_type: str) -> str:
    """Return LLVM text that subtracts the first address of a half warp from all its addresses.

    The result is ``%x0`` or ``%x1``.
    """
    half_row_type = f"<{HALF_WARP_LANES} x {address_type}>"
    lane_order = _make_shuffle_order(HALF_WARP_LANES * half, HALF_WARP_LANES * half + HALF_WARP_LANES)
    return (
        f"  %a{half} = shufflevector <32 x {address_type}> %a, <32 x {address_type}> poison, <{HALF_WARP_LANES} x i32> {lane_order}\n"
        f"  %p{half}.0 = insertelement {half_row_type} poison, {address_type} %p{half}, i32 0\n"
        f"  %p{half}.s = shufflevector {half_row_type} %p{half}.0, {half_row_type} poison, <{HALF_WARP_LANES} x i32> zeroinitializer\n"
        f"  %x{half} = sub {half_row_type} %a{half}, %p{half}.s\n"
    )


def _make_half_row_test(half: int, address_type: str, size: int) -> str:
    """Return LLVM text that tests whether the addresses of a half warp are consecutive.

    It also computes the address of the last lane.
    """
    offsets = "<" + ", ".join(f"{address_type} {size * lane}" for lane in range(HALF_WARP_LANES)) + ">"
    return (
        f"  %y{half} = xor <{HALF_WARP_LANES} x {address_type}> %x{half}, {offsets}\n"
        + make_zero_test(address_type, HALF_WARP_LANES, f"%y{half}", f"%line{half}")
        + f"  %e{half} = add {address_type} %p{half}, {size * (HALF_WARP_LANES - 1)}\n"
    )


def make_half_load(
    half: int, address_type: str, llvm_type: str, pointer: str, fallback_label: str, bounds_check: str = ""
) -> str:
    """Return LLVM text that loads the values of a half warp from a single address or from consecutive
    elements.

    The generated code ends at the label ``loaded0`` or ``loaded1``.

    `pointer` is text that makes a pointer ``%q0`` or ``%q1`` of the half's first address. All other patterns
    go to `fallback_label`, and so does a row unless the text `bounds_check` makes ``%in0`` or ``%in1`` true.
    Then ``%v0`` or ``%v1`` are the values and ``%l0`` or ``%l1`` is the last lane's address.
    """
    element_bytes = get_bit_width(llvm_type) // 8
    half_row_type = f"<{HALF_WARP_LANES} x {llvm_type}>"
    combine_text = (
        f"  %fits{half} = and i1 %line{half}, %in{half}\n"
        if bounds_check
        else f"  %fits{half} = and i1 %line{half}, true\n"
    )
    return f"""half{half}:
{_make_distances(half, address_type)}{pointer}{make_zero_test(address_type, HALF_WARP_LANES, f"%x{half}", f"%same{half}")}  br i1 %same{half}, label %one{half}, label %ask{half}
one{half}:
  %s{half} = load {llvm_type}, ptr %q{half}, align {element_bytes}
  %s{half}.0 = insertelement {half_row_type} poison, {llvm_type} %s{half}, i32 0
  %s{half}.v = shufflevector {half_row_type} %s{half}.0, {half_row_type} poison, <{HALF_WARP_LANES} x i32> zeroinitializer
  br label %loaded{half}
ask{half}:
{_make_half_row_test(half, address_type, element_bytes)}{bounds_check}{combine_text}  br i1 %fits{half}, label %row{half}, label %{fallback_label}
row{half}:
  %r{half} = load {half_row_type}, ptr %q{half}, align {element_bytes}
  br label %loaded{half}
loaded{half}:
  %v{half} = phi {half_row_type} [%s{half}.v, %one{half}], [%r{half}, %row{half}]
  %l{half} = phi {address_type} [%p{half}, %one{half}], [%e{half}, %row{half}]
"""


def make_half_store(half: int, address_type: str, llvm_type: str, pointer: str) -> str:
    """Return LLVM text that stores half of the values in ``%v`` to consecutive elements."""
    half_row_type = f"<{HALF_WARP_LANES} x {llvm_type}>"
    lane_order = _make_shuffle_order(HALF_WARP_LANES * half, HALF_WARP_LANES * half + HALF_WARP_LANES)
    return (
        f"{pointer}  %v{half} = shufflevector <32 x {llvm_type}> %v, <32 x {llvm_type}> poison, <{HALF_WARP_LANES} x i32> {lane_order}\n"
        f"  store {half_row_type} %v{half}, ptr %q{half}, align {get_bit_width(llvm_type) // 8}\n"
    )


def make_row_tests(address_type: str, size: int) -> str:
    """Return LLVM text that sets ``%lines`` to whether each half warp has consecutive addresses."""
    return (
        "".join(
            _make_distances(n, address_type) + _make_half_row_test(n, address_type, size) for n in range(2)
        )
        + "  %lines = and i1 %line0, %line1\n"
    )


def make_host_pointer(half: int) -> str:
    """Return LLVM text that converts the first host address of a half warp to a pointer."""
    return f"  %q{half} = inttoptr i64 %p{half} to ptr\n"


def make_half_return(llvm_type: str) -> str:
    """Return LLVM text that joins the values of both half warps and returns them."""
    return (
        f"  %v = shufflevector <{HALF_WARP_LANES} x {llvm_type}> %v0, <{HALF_WARP_LANES} x {llvm_type}> %v1, <32 x i32> {_make_shuffle_order(0, 32)}\n"
        f"  ret <32 x {llvm_type}> %v\n"
    )


_SITE_PARAMETERS = "i32 %function, i32 %pc, i32 %site"


def make_shared_load(llvm_type: str, counts_passes: bool) -> tuple[str, str]:
    """Return the LLVM function for a load from shared memory, including its checks and counters.

    Addresses are offsets. Faults are recorded in the context.

    Lanes within 32 words use no bank twice, except for the same word.
    """
    size = get_bit_width(llvm_type) // 8
    name = f"load_shared_{llvm_type}"
    check_function, _ = checks.make_shared_check(size, counts_passes)
    counting_text = ""
    if counts_passes:
        counting_text = (
            checks.make_counter_address("%site")
            + """  %all = load <4 x i64>, ptr %cnt, align 8
  %all.1 = add <4 x i64> %all, <i64 1, i64 0, i64 1, i64 1>
  store <4 x i64> %all.1, ptr %cnt, align 8
  %cnt.l = getelementptr i64, ptr %cnt, i64 4
"""
            + make_memory_add("%cnt.l", "32", "lan")
            + make_field_pointer("wavefronts", "%tot")
            + make_memory_add("%tot", "1", "sum")
        )
    pointer_texts, bounds_checks = (
        [half_text.format(n=n) for n in range(2)]
        for half_text in (
            "  %w{n} = zext i32 %p{n} to i64\n  %q{n} = getelementptr i8, ptr %shared, i64 %w{n}\n",
            "  %f{n} = zext i32 %e{n} to i64\n  %in{n} = icmp sle i64 %f{n}, %limit\n",
        )
    )
    llvm_text = f"""
define internal <32 x {llvm_type}> @{name}(ptr %ctx, <32 x i32> %a, i32 %mask, {_SITE_PARAMETERS}) noinline {{
entry:
{make_field_load("shared_bytes", "%bytes")}{make_field_load("shared", "%shared.i")}  %shared = inttoptr i64 %shared.i to ptr
  %limit = sub i64 %bytes, {size}
{make_first_addresses("i32")}  %top = call i32 @llvm.umax.i32(i32 %p0, i32 %p1)
  %top.w = zext i32 %top to i64
  %far = icmp sgt i64 %top.w, %limit
  %either = or i32 %p0, %p1
  %low = and i32 %either, {size - 1}
  %odd = icmp ne i32 %low, 0
  %some = icmp ne i32 %mask, -1
  %bad = or i1 %far, %odd
  %other = or i1 %bad, %some
  br i1 %other, label %slow, label %half0
{make_half_load(0, "i32", llvm_type, pointer_texts[0], "slow", bounds_checks[0])}  br label %half1
{make_half_load(1, "i32", llvm_type, pointer_texts[1], "slow", bounds_checks[1])}  %lowest = call i32 @llvm.umin.i32(i32 %p0, i32 %p1)
  %highest = call i32 @llvm.umax.i32(i32 %l0, i32 %l1)
  %from = lshr i32 %lowest, 2
  %to = lshr i32 %highest, 2
  %span = sub i32 %to, %from
  %near = icmp ult i32 %span, 32
  br i1 %near, label %counted, label %slow
counted:
{counting_text}{make_half_return(llvm_type)}slow:
  %failed = call i1 @{check_function}(ptr %ctx, <32 x i32> %a, i32 %mask, {_SITE_PARAMETERS})
  br i1 %failed, label %fail, label %apart
fail:
  ret <32 x {llvm_type}> zeroinitializer
apart:
  %wide = zext <32 x i32> %a to <32 x i64>
{make_splat("i64", "%shared.i", "%base")}  %host = add <32 x i64> %base, %wide
  %g = call <32 x {llvm_type}> @gather_{llvm_type}(<32 x i64> %host, i32 %mask)
  ret <32 x {llvm_type}> %g
}}
"""
    return name, llvm_text


# Here the halves are adjacent in memory, and together they touch fewer than 16 sectors.
_SECTOR_COUNT_TEXT = f"""  %from0 = lshr i64 %p0, 5
  %to0 = lshr i64 %l0, 5
  %from1 = lshr i64 %p1, 5
  %to1 = lshr i64 %l1, 5
  %meet = icmp eq i64 %to0, %from1
  %meet.n = zext i1 %meet to i64
  %many0 = sub i64 %to0, %from0
  %many1 = sub i64 %to1, %from1
  %many = add i64 %many0, %many1
  %many.2 = add i64 %many, 2
  %total = sub i64 %many.2, %meet.n
  %half.from0 = lshr i64 %p0, 6
  %half.to0 = lshr i64 %l0, 6
  %half.from1 = lshr i64 %p1, 6
  %half.to1 = lshr i64 %l1, 6
  %half.meet = icmp eq i64 %half.to0, %half.from1
  %half.meet.n = zext i1 %half.meet to i64
  %half.many0 = sub i64 %half.to0, %half.from0
  %half.many1 = sub i64 %half.to1, %half.from1
  %half.many = add i64 %half.many0, %half.many1
  %half.many.2 = add i64 %half.many, 2
  %halves = sub i64 %half.many.2, %half.meet.n
{make_memory_add("%cnt", "1", "req")}  %cnt.s = getelementptr i64, ptr %cnt, i64 1
{make_memory_add("%cnt.s", "%total", "sec")}  %cnt.l = getelementptr i64, ptr %cnt, i64 4
{make_memory_add("%cnt.l", "32", "lan")}  %cnt.h = getelementptr i64, ptr %cnt, i64 6
{make_memory_add("%cnt.h", "%halves", "hal")}{make_field_pointer("sectors", "%tot")}{make_memory_add("%tot", "%total", "all")}"""

_MISS_COUNT_TEXT = f"""{access_rules.L1_FIELD_LOADS}  %after0 = add i64 %to0, 1
  %together = icmp ule i64 %from1, %after0
  %end0 = select i1 %together, i64 %to1, i64 %to0
  br label %look
look:
  %sector = phi i64 [%from0, %inside], [%sector1, %look]
  %misses = phi i64 [0, %inside], [%misses1, %look]
  %in.first = icmp ule i64 %sector, %end0
  %end = select i1 %in.first, i64 %end0, i64 %to1
  %left = sub i64 %end, %sector
  %from.start = sub i64 %sector, %l1.first
  %in.line = and i64 %from.start, 3
  %line.left = sub i64 3, %in.line
  %span = call i64 @llvm.umin.i64(i64 %left, i64 %line.left)
  %power = shl i64 2, %span
  %ones = sub i64 %power, 1
{access_rules.make_l1_lookup("%sector", "s", "%ones")}  %misses1 = add i64 %misses, %missed.s
  %final = add i64 %sector, %span
  %onward = add i64 %final, 1
  %over = icmp eq i64 %final, %end0
  %leap = call i64 @llvm.umax.i64(i64 %onward, i64 %from1)
  %sector1 = select i1 %over, i64 %leap, i64 %onward
  %last = icmp eq i64 %final, %to1
  br i1 %last, label %looked, label %look
looked:
  %cnt.m = getelementptr i64, ptr %cnt, i64 5
{make_memory_add("%cnt.m", "%misses1", "mis")}  %shift = sub i64 %p1, %p0
  %distance = and i64 %shift, 127
  %width0 = sub i64 %l0, %p0
  %width1 = sub i64 %l1, %p1
  %before = sub i64 128, %distance
  %over0 = icmp ule i64 %distance, %width0
  %over1 = icmp ule i64 %before, %width1
  %overlap = or i1 %over0, %over1
  %separate = xor i1 %together, true
  %second = and i1 %overlap, %separate
  %passes = zext i1 %second to i64
  %cnt.p = getelementptr i64, ptr %cnt, i64 7
{make_memory_add("%cnt.p", "%passes", "pas")}  %waited = icmp ne i64 %misses1, 0
  %waited64 = zext i1 %waited to i64
  %cnt.q = getelementptr i64, ptr %cnt, i64 8
{make_memory_add("%cnt.q", "%waited64", "wai")}"""

_GLOBAL_HEAD_TEXT = f"""entry:
{make_field_load("access_cache", "%cache.i")}  %cache.b = inttoptr i64 %cache.i to ptr
  %at = mul i32 %site, 16
  %cache = getelementptr i8, ptr %cache.b, i32 %at
  %base = load i64, ptr %cache
  %room.p = getelementptr i64, ptr %cache, i64 1
  %room = load i64, ptr %room.p
{make_first_addresses("i64")}  %d0 = sub i64 %p0, %base
  %d1 = sub i64 %p1, %base
  %top = call i64 @llvm.umax.i64(i64 %d0, i64 %d1)
  %far = icmp uge i64 %top, %room
  %either = or i64 %p0, %p1
  %low = and i64 %either, @LOW
  %odd = icmp ne i64 %low, 0
  %some = icmp ne i32 %mask, -1
  %bad = or i1 %far, %odd
  %other = or i1 %bad, %some
"""


def _make_bounds_check(half: int) -> str:
    return f"  %f{half} = sub i64 %e{half}, %base\n  %in{half} = icmp ult i64 %f{half}, %room\n"


def make_global_load(llvm_type: str, counts_sectors: bool) -> tuple[str, str]:
    """Return the LLVM function for a load from global memory. Faults are recorded in the context."""
    size = get_bit_width(llvm_type) // 8
    name = f"load_global_{llvm_type}"
    check_name, _ = checks.make_global_check(size, counts_sectors)
    llvm_text = f"""
define internal <32 x {llvm_type}> @{name}(ptr %ctx, <32 x i64> %a, i32 %mask, {_SITE_PARAMETERS}) noinline {{
{_GLOBAL_HEAD_TEXT.replace("@LOW", str(size - 1))}  br i1 %other, label %slow, label %half0
{make_half_load(0, "i64", llvm_type, make_host_pointer(0), "slow", _make_bounds_check(0))}  br label %half1
{make_half_load(1, "i64", llvm_type, make_host_pointer(1), "slow", _make_bounds_check(1))}  %sorted = icmp ule i64 %l0, %p1
  br i1 %sorted, label %inside, label %slow
inside:
{checks.make_counter_address("%site") + _SECTOR_COUNT_TEXT + _MISS_COUNT_TEXT if counts_sectors else ""}{make_half_return(llvm_type)}slow:
  %failed = call i1 @{check_name}(ptr %ctx, <32 x i64> %a, i32 %mask, {_SITE_PARAMETERS})
  br i1 %failed, label %fail, label %apart
fail:
  ret <32 x {llvm_type}> zeroinitializer
apart:
  %g = call <32 x {llvm_type}> @gather_{llvm_type}(<32 x i64> %a, i32 %mask)
  ret <32 x {llvm_type}> %g
}}
"""
    return name, llvm_text


def make_global_store(llvm_type: str, counts_sectors: bool) -> tuple[str, str]:
    """Return the LLVM function for a store to global memory. Faults are recorded in the context."""
    size = get_bit_width(llvm_type) // 8
    name = f"store_global_{llvm_type}"
    check_name, _ = checks.make_global_check(size, counts_sectors, "store")
    counting_text = (
        "  %l0 = add i64 %e0, 0\n  %l1 = add i64 %e1, 0\n"
        + checks.make_counter_address("%site")
        + _SECTOR_COUNT_TEXT
    )
    llvm_text = f"""
define internal void @{name}(ptr %ctx, <32 x {llvm_type}> %v, <32 x i64> %a, i32 %mask, {_SITE_PARAMETERS}) noinline {{
{_GLOBAL_HEAD_TEXT.replace("@LOW", str(size - 1))}  br i1 %other, label %slow, label %ask
ask:
{make_row_tests("i64", size)}{_make_bounds_check(0)}{_make_bounds_check(1)}  %in = and i1 %in0, %in1
  %sorted = icmp ule i64 %e0, %p1
  %both = and i1 %in, %sorted
  %fits = and i1 %both, %lines
  br i1 %fits, label %inside, label %slow
inside:
{counting_text if counts_sectors else ""}{make_half_store(0, "i64", llvm_type, make_host_pointer(0))}{make_half_store(1, "i64", llvm_type, make_host_pointer(1))}  ret void
slow:
  %failed = call i1 @{check_name}(ptr %ctx, <32 x i64> %a, i32 %mask, {_SITE_PARAMETERS})
  br i1 %failed, label %fail, label %apart
fail:
  ret void
apart:
  call void @scatter_{llvm_type}(<32 x {llvm_type}> %v, <32 x i64> %a, i32 %mask)
  ret void
}}
"""
    return name, llvm_text
