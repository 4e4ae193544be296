"""LLVM IR functions for loads, stores, atomics and permutations of 32 lanes, generated when needed."""

from __future__ import annotations

from virtualgpu.engine.ir import rows
from virtualgpu.engine.ir.emit import INTRINSIC_SUFFIX, get_bit_width
from virtualgpu.engine.ir.text import make_lane_mask, make_splat


def _make_row_test(size: int) -> str:
    """Return LLVM text that sets ``%line`` to whether the addresses ``%a`` of all lanes are consecutive.

    The first address is ``%a0``.
    """
    offsets = "<" + ", ".join(f"i64 {size * lane}" for lane in range(32)) + ">"
    return (
        "  %a0 = extractelement <32 x i64> %a, i32 0\n"
        + make_splat("i64", "%a0", "%first")
        + f"  %row = add <32 x i64> %first, {offsets}\n  %off = xor <32 x i64> %a, %row\n"
        + rows.make_zero_test("i64", 32, "%off", "%line")
    )


def make_gather(llvm_type: str) -> tuple[str, str]:
    """Return an LLVM function that loads one value per lane from host addresses. Inactive lanes receive 0.

    Inactive lanes load from the first active lane's address, because without AVX-512 leaving out single lanes
    takes a branch each.
    """
    name = f"gather_{llvm_type}"
    element_bytes = get_bit_width(llvm_type) // 8
    vector_type = f"<32 x {llvm_type}>"
    intrinsic = f"llvm.masked.gather.v32{llvm_type}.v32p0"
    all_lanes = "<32 x i1> splat (i1 true)"
    llvm_text = f"""
declare {vector_type} @{intrinsic}(<32 x ptr>, <32 x i1>, {vector_type})
define internal {vector_type} @{name}(<32 x i64> %a, i32 %mask) noinline {{
entry:
  %full = icmp eq i32 %mask, -1
  br i1 %full, label %ask, label %some
ask:
{_make_row_test(element_bytes)}  br i1 %line, label %straight, label %all
straight:
  %p0 = inttoptr i64 %a0 to ptr
  %v = load {vector_type}, ptr %p0, align {element_bytes}
  ret {vector_type} %v
some:
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %nothing, label %part
nothing:
  ret {vector_type} zeroinitializer
part:
  %l = call i32 @llvm.cttz.i32(i32 %mask, i1 true)
  %p = extractelement <32 x i64> %a, i32 %l
{make_splat("i64", "%p", "%safe")}{make_lane_mask("%mask", "%m")}  %chosen = select <32 x i1> %m, <32 x i64> %a, <32 x i64> %safe
  br label %all
all:
  %from = phi <32 x i64> [%a, %ask], [%chosen, %part]
  %ps = inttoptr <32 x i64> %from to <32 x ptr>
  %g = call {vector_type} @{intrinsic}(<32 x ptr> align {element_bytes} %ps, {all_lanes}, {vector_type} zeroinitializer)
{make_lane_mask("%mask", "%in")}  %r = select <32 x i1> %in, {vector_type} %g, {vector_type} zeroinitializer
  ret {vector_type} %r
}}
"""
    return name, llvm_text


def make_scatter(llvm_type: str) -> tuple[str, str]:
    """Return an LLVM function that stores one value per lane to host addresses.

    If several lanes have the same address, the value of the highest lane is stored.
    """
    name = f"scatter_{llvm_type}"
    element_bytes = get_bit_width(llvm_type) // 8
    vector_type = f"<32 x {llvm_type}>"
    intrinsic = f"llvm.masked.scatter.v32{llvm_type}.v32p0"
    llvm_text = f"""
declare void @{intrinsic}({vector_type}, <32 x ptr>, <32 x i1>)
define internal void @{name}({vector_type} %v, <32 x i64> %a, i32 %mask) noinline {{
entry:
  %full = icmp eq i32 %mask, -1
  br i1 %full, label %ask, label %some
ask:
{_make_row_test(element_bytes)}  br i1 %line, label %straight, label %some
straight:
  %p0 = inttoptr i64 %a0 to ptr
  store {vector_type} %v, ptr %p0, align {element_bytes}
  ret void
some:
  %ps = inttoptr <32 x i64> %a to <32 x ptr>
  %m = bitcast i32 %mask to <32 x i1>
  call void @{intrinsic}({vector_type} %v, <32 x ptr> align {element_bytes} %ps, <32 x i1> %m)
  ret void
}}
"""
    return name, llvm_text


_ATOMIC_OPERATIONS = {
    "add": "add",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "exch": "xchg",
    "inc": "uinc_wrap",
    "dec": "udec_wrap",
}


# Float addition in global memory takes subnormals for zero, in shared memory it does not (PTX ISA, atom).
_FLUSHING_ADD_TEXT = """  %fx = call float @flushed(float %x)
  %first = load i32, ptr %p
  br label %again
again:
  %before = phi i32 [%first, %lane], [%seen, %again]
  %old = bitcast i32 %before to float
  %fold = call float @flushed(float %old)
  %sum = fadd float %fold, %fx
  %fsum = call float @flushed(float %sum)
  %raw = bitcast float %fsum to i32
  %pair = cmpxchg ptr %p, i32 %before, i32 %raw seq_cst seq_cst, align 4
  %seen = extractvalue {i32, i1} %pair, 0
  %fine = extractvalue {i32, i1} %pair, 1
  br i1 %fine, label %stored, label %again
stored:
"""
_FLUSH_FUNCTION_TEXT = """
declare float @llvm.fabs.f32(float)
declare float @llvm.copysign.f32(float, float)
define internal float @flushed(float %v) {
  %size = call float @llvm.fabs.f32(float %v)
  %tiny = fcmp olt float %size, 0x3810000000000000
  %zero = call float @llvm.copysign.f32(float 0.0, float %v)
  %r = select i1 %tiny, float %zero, float %v
  ret float %r
}
"""


# Additions without a machine instruction: repeated until no other thread has written in between.
_ADD_AND_SWAP_TEXT = """  %first = load {word}, ptr %p
  br label %again
again:
  %old = phi {word} [%first, %lane], [%seen, %again]
  %new = call {word} @add_{kind}({word} %old, {word} %x)
  %pair = cmpxchg ptr %p, {word} %old, {word} %new seq_cst seq_cst, align {size}
  %seen = extractvalue {{{word}, i1}} %pair, 0
  %fine = extractvalue {{{word}, i1}} %pair, 1
  br i1 %fine, label %stored, label %again
stored:
"""
_ADD_HALVES_TEXT = """
define internal {word} @add_{kind}({word} %a, {word} %b) {{
  %xh = bitcast {word} %a to <{n} x half>
  %yh = bitcast {word} %b to <{n} x half>
  %x = fpext <{n} x half> %xh to <{n} x float>
  %y = fpext <{n} x half> %yh to <{n} x float>
  %sum = fadd <{n} x float> %x, %y
  %sumh = fptrunc <{n} x float> %sum to <{n} x half>
  %r = bitcast <{n} x half> %sumh to {word}
  ret {word} %r
}}
"""
# A bf16 is the upper half of a float; the sum is rounded to nearest even, NaN becomes 0x7FFF.
_ADD_BFLOATS_TEXT = """
define internal {word} @add_{kind}({word} %a, {word} %b) {{
  %x16 = bitcast {word} %a to <{n} x i16>
  %y16 = bitcast {word} %b to <{n} x i16>
  %x32 = zext <{n} x i16> %x16 to <{n} x i32>
  %y32 = zext <{n} x i16> %y16 to <{n} x i32>
  %xs = shl <{n} x i32> %x32, splat (i32 16)
  %ys = shl <{n} x i32> %y32, splat (i32 16)
  %x = bitcast <{n} x i32> %xs to <{n} x float>
  %y = bitcast <{n} x i32> %ys to <{n} x float>
  %sum = fadd <{n} x float> %x, %y
  %raw = bitcast <{n} x float> %sum to <{n} x i32>
  %last = lshr <{n} x i32> %raw, splat (i32 16)
  %odd = and <{n} x i32> %last, splat (i32 1)
  %more = add <{n} x i32> %raw, splat (i32 32767)
  %round = add <{n} x i32> %more, %odd
  %high = lshr <{n} x i32> %round, splat (i32 16)
  %nan = fcmp uno <{n} x float> %sum, %sum
  %kept = select <{n} x i1> %nan, <{n} x i32> splat (i32 32767), <{n} x i32> %high
  %r16 = trunc <{n} x i32> %kept to <{n} x i16>
  %r = bitcast <{n} x i16> %r16 to {word}
  ret {word} %r
}}
"""


def make_atomic_half_add(element_type: str) -> tuple[str, str]:
    """Return an LLVM function that adds one or two f16 or bf16 values per lane atomically.

    The function returns the old values as integers.
    """
    word_type = "i16"
    template_values = {"word": word_type, "kind": element_type, "size": 2, "n": 1}
    if element_type.endswith("x2"):
        word_type = "i32"
        template_values = {"word": word_type, "kind": element_type, "size": 4, "n": 2}
    function_head = (_ADD_BFLOATS_TEXT if element_type.startswith("bf") else _ADD_HALVES_TEXT).format(
        **template_values
    )
    return _make_lane_loop(
        f"atomic_add_{element_type}",
        word_type,
        _ADD_AND_SWAP_TEXT.format(**template_values),
        function_head,
        "stored",
    )


def make_atomic(
    operation: str, llvm_type: str, is_signed: bool, flushes_subnormals: bool = False
) -> tuple[str, str]:
    """Return an LLVM function that executes an atomic for each lane in turn and returns the old values.

    With `flushes_subnormals`, a float addition treats subnormal numbers as zero.
    """
    flushes_subnormals = flushes_subnormals and operation == "add" and llvm_type == "float"
    name = (
        f"atomic_{operation}_{'s' if is_signed else 'u'}_{llvm_type}{'_flush' if flushes_subnormals else ''}"
    )
    element_bytes = get_bit_width(llvm_type) // 8
    function_head, last_block = (_FLUSH_FUNCTION_TEXT, "stored") if flushes_subnormals else ("", "lane")
    if flushes_subnormals:
        action_text = _FLUSHING_ADD_TEXT
    elif operation == "cas":
        action_text = (
            f"  %pair = cmpxchg ptr %p, {llvm_type} %x, {llvm_type} %y seq_cst seq_cst, align {element_bytes}\n"
            f"  %old = extractvalue {{{llvm_type}, i1}} %pair, 0\n"
        )
    else:
        if operation in ("min", "max"):
            llvm_operation = operation if is_signed else "u" + operation
        else:
            llvm_operation = _ATOMIC_OPERATIONS[operation]
        if llvm_type in INTRINSIC_SUFFIX:
            llvm_operation = "fadd" if llvm_operation == "add" else llvm_operation
        action_text = (
            f"  %old = atomicrmw {llvm_operation} ptr %p, {llvm_type} %x seq_cst, align {element_bytes}\n"
        )
    return _make_lane_loop(name, llvm_type, action_text, function_head, last_block)


def _make_lane_loop(
    name: str, llvm_type: str, action_text: str, function_head: str, last_block: str
) -> tuple[str, str]:
    """Return an LLVM function that executes the text `action_text` for one active lane after another.

    `last_block` is the label of the LLVM block in which `action_text` ends.
    """
    vector_type = f"<32 x {llvm_type}>"
    llvm_text = f"""{function_head}
define internal {vector_type} @{name}(<32 x i64> %a, i32 %mask, {vector_type} %b, {vector_type} %c) noinline {{
entry:
  %as = alloca <32 x i64>
  %bs = alloca {vector_type}
  %cs = alloca {vector_type}
  %os = alloca {vector_type}
  store <32 x i64> %a, ptr %as
  store {vector_type} %b, ptr %bs
  store {vector_type} %c, ptr %cs
  store {vector_type} zeroinitializer, ptr %os
  br label %loop
loop:
  %rest = phi i32 [%mask, %entry], [%rest1, %{last_block}]
  %over = icmp eq i32 %rest, 0
  br i1 %over, label %done, label %lane
lane:
  %l = call i32 @llvm.cttz.i32(i32 %rest, i1 false)
  %ap = getelementptr i64, ptr %as, i32 %l
  %i = load i64, ptr %ap
  %p = inttoptr i64 %i to ptr
  %xp = getelementptr {llvm_type}, ptr %bs, i32 %l
  %x = load {llvm_type}, ptr %xp
  %yp = getelementptr {llvm_type}, ptr %cs, i32 %l
  %y = load {llvm_type}, ptr %yp
{action_text}  %op = getelementptr {llvm_type}, ptr %os, i32 %l
  store {llvm_type} %old, ptr %op
  %minus = sub i32 %rest, 1
  %rest1 = and i32 %rest, %minus
  br label %loop
done:
  %r = load {vector_type}, ptr %os
  ret {vector_type} %r
}}
"""
    return name, llvm_text


def make_permute(llvm_type: str) -> tuple[str, str]:
    """Return an LLVM function that permutes the values of lanes. Lane l receives the value of lane
    ``index[l]``.
    """
    name = f"permute_{llvm_type}"
    vector_type = f"<32 x {llvm_type}>"
    suffix = INTRINSIC_SUFFIX.get(llvm_type, llvm_type)
    intrinsic = f"llvm.masked.gather.v32{suffix}.v32p0"
    llvm_text = f"""
declare {vector_type} @{intrinsic}(<32 x ptr>, <32 x i1>, {vector_type})
define internal {vector_type} @{name}({vector_type} %v, <32 x i32> %index) noinline {{
  %spill = alloca {vector_type}
  store {vector_type} %v, ptr %spill
  %ps = getelementptr {llvm_type}, ptr %spill, <32 x i32> %index
  %g = call {vector_type} @{intrinsic}(<32 x ptr> align {get_bit_width(llvm_type) // 8} %ps, <32 x i1> splat (i1 true), {vector_type} zeroinitializer)
  ret {vector_type} %g
}}
"""
    return name, llvm_text
