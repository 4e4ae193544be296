"""Replacement of operations that a processor does not support by functions that use other instructions.

LLVM turns such operations into calls of functions of the C library or of the compiler's own, which may be
missing, and are slow. Here they become calls of functions that the text itself defines.
"""

from __future__ import annotations

import re

from virtualgpu.engine.machine.processor import Processor

# A value is a name, or a constant, which has spaces where it is one in each lane.
_HALF_CONVERSION_PATTERN = re.compile(
    r"\b(?:fpext (?P<short><\d+ x half>|half)|fptrunc (?P<long><\d+ x float>|float)) "
    r"(?P<value>splat \([^)]*\)|<[^>]*>|[^ ]+) to (?:<\d+ x )?(?:half|float)>?(?=[ \n])"
)
_FUSED_MULTIPLY_ADD_PATTERN = re.compile(r"@llvm\.fma\.(v32f32|v32f64)\(")
_CONSTRAINED_FMA_PATTERN = re.compile(
    r"@llvm\.experimental\.constrained\.fma\.(v32f32|v32f64)\(([^\n]*?), metadata [^\n]*\) strictfp"
)
_FMA_DECLARATION_PATTERN = re.compile(
    r"declare [^\n]*@llvm\.(?:experimental\.constrained\.)?fma\.v32f(?:32|64)\([^\n]*\n"
)


def replace_missing_operations(text: str, target_processor: Processor) -> str:
    """Replace the operations in LLVM text that the target processor lacks by equivalent operations."""
    functions: dict[str, str] = {}
    if not target_processor.converts_halves:
        text = _HALF_CONVERSION_PATTERN.sub(
            lambda match: _make_conversion_call(match, functions), text + "\n"
        )
    if not target_processor.has_fused_multiply_add:
        text = _FMA_DECLARATION_PATTERN.sub("", text)
        text = _FUSED_MULTIPLY_ADD_PATTERN.sub(lambda match: _make_fused_call(match[1], functions), text)
        text = _CONSTRAINED_FMA_PATTERN.sub(
            lambda match: f"{_make_fused_call(match[1], functions, '_as_set')}{match[2]}) strictfp", text
        )
    if not functions:
        return text
    known_declarations = set(re.findall(r"^declare .*", text, re.MULTILINE))
    lines = "\n".join(functions.values()).split("\n")
    declarations = {line for line in lines if line.startswith("declare ")} - known_declarations
    definition_lines = [line for line in lines if not line.startswith("declare ")]
    return "\n".join([*sorted(declarations), text, *definition_lines])


def _make_conversion_call(match: re.Match[str], functions: dict[str, str]) -> str:
    source_type = match["short"] or match["long"]
    lane_count = int(source_type[1:].split()[0]) if source_type[0] == "<" else 0
    is_widening = match["short"] is not None
    name = f"{'widen' if is_widening else 'narrow'}_half{f'_{lane_count}' if lane_count else ''}"
    target_type = _vector_type(lane_count, "float" if is_widening else "half")
    if name not in functions:
        type_of_kind = {"half": _vector_type(lane_count, "half"), "i16": _vector_type(lane_count, "i16")}
        type_of_kind |= {"i32": _vector_type(lane_count, "i32"), "float": _vector_type(lane_count, "float")}
        splat_values = _SplatConstants(lane_count)
        functions[name] = (_WIDEN_TEMPLATE if is_widening else _NARROW_TEMPLATE).format(
            name=name, n=splat_values, **type_of_kind, i1=_vector_type(lane_count, "i1")
        )
    return f"call {target_type} @{name}({source_type} {match['value']})"


def _vector_type(lane_count: int, element_type: str) -> str:
    """Return the LLVM type of a vector, or of a single number if `lane_count` is 0."""
    return f"<{lane_count} x {element_type}>" if lane_count else element_type


class _SplatConstants:
    """The vector constants for a template: ``{n[255]}`` is a vector with 255 in each lane."""

    def __init__(self, lane_count: int) -> None:
        self.lane_count = lane_count

    def __getitem__(self, number: object) -> str:
        number_type, _, value_text = str(number).rpartition("~")
        return f"splat ({number_type or 'i32'} {value_text})" if self.lane_count else value_text


# The bits of a half are those of a float after a shift by 13, with an exponent 112 less. Subnormal ones get a
# leading one, which is then taken away.
_WIDEN_TEMPLATE = """
define internal {float} @{name}({half} %x) {{
  %short = bitcast {half} %x to {i16}
  %raw = zext {i16} %short to {i32}
  %signs = and {i32} %raw, {n[32768]}
  %sign = shl {i32} %signs, {n[16]}
  %sizes = and {i32} %raw, {n[32767]}
  %size = shl {i32} %sizes, {n[13]}
  %normal = add {i32} %size, {n[939524096]}
  %endless = add {i32} %size, {n[1879048192]}
  %quiet = or {i32} %endless, {n[4194304]}
  %lifted = add {i32} %size, {n[947912704]}
  %lifted.f = bitcast {i32} %lifted to {float}
  %small.f = fsub {float} %lifted.f, {n[float~0x3F10000000000000]}
  %small = bitcast {float} %small.f to {i32}
  %is.small = icmp ult {i32} %sizes, {n[1024]}
  %is.endless = icmp ugt {i32} %sizes, {n[31743]}
  %is.nan = icmp ugt {i32} %sizes, {n[31744]}
  %r1 = select {i1} %is.small, {i32} %small, {i32} %normal
  %r2 = select {i1} %is.endless, {i32} %endless, {i32} %r1
  %r3 = select {i1} %is.nan, {i32} %quiet, {i32} %r2
  %r4 = or {i32} %r3, %sign
  %r = bitcast {i32} %r4 to {float}
  ret {float} %r
}}
"""
# Rounded by adding half of what the last bit counts, a tie only where the result is odd. For subnormal ones
# the addition of 0.5, whose last bit counts as much as theirs, rounds.
_NARROW_TEMPLATE = """
define internal {half} @{name}({float} %x) {{
  %raw = bitcast {float} %x to {i32}
  %size = and {i32} %raw, {n[2147483647]}
  %signs = xor {i32} %raw, %size
  %sign = lshr {i32} %signs, {n[16]}
  %last = lshr {i32} %size, {n[13]}
  %odd = and {i32} %last, {n[1]}
  %more = add {i32} %size, {n[4095]}
  %rounded = add {i32} %more, %odd
  %shifted = lshr {i32} %rounded, {n[13]}
  %normal = sub {i32} %shifted, {n[114688]}
  %size.f = bitcast {i32} %size to {float}
  %small.f = fadd {float} %size.f, {n[float~0x3FE0000000000000]}
  %small.r = bitcast {float} %small.f to {i32}
  %small = sub {i32} %small.r, {n[1056964608]}
  %payload = and {i32} %last, {n[1023]}
  %nan = or {i32} %payload, {n[32256]}
  %is.small = icmp ult {i32} %size, {n[947912704]}
  %is.large = icmp ugt {i32} %size, {n[1199566847]}
  %is.nan = icmp ugt {i32} %size, {n[2139095040]}
  %r1 = select {i1} %is.small, {i32} %small, {i32} %normal
  %r2 = select {i1} %is.large, {i32} {n[31744]}, {i32} %r1
  %r3 = select {i1} %is.nan, {i32} %nan, {i32} %r2
  %r4 = or {i32} %r3, %sign
  %r5 = trunc {i32} %r4 to {i16}
  %r = bitcast {i16} %r5 to {half}
  ret {half} %r
}}
"""


def _make_fused_call(kind: str, functions: dict[str, str], suffix: str = "") -> str:
    name = f"fused_{kind}{suffix}"
    if name not in functions:
        is_float32 = kind == "v32f32"
        functions["odd" if is_float32 else "one"] = _ODD_SUM_TEXT if is_float32 else _SCALAR_FMA_TEXT
        if is_float32:
            functions[name] = _ROUNDED_FLOAT_FMA_TEXT if suffix else _FLOAT_FMA_TEXT
        else:
            rounding_mode_text = "call i32 @llvm.get.rounding()" if suffix else "add i32 0, 1"
            functions[name] = _DOUBLE_FMA_TEMPLATE.format(name=name, mode=rounding_mode_text)
    return f"@{name}("


# The product of two floats is exact as a double. Knuth's two sums compute the error of the addition, and a
# sum made odd where it lost something rounds to float as the exact one does.
_ODD_SUM_TEXT = """
define internal <32 x double> @fused_odd(<32 x float> %a, <32 x float> %b, <32 x float> %c) noinline {
  %x = fpext <32 x float> %a to <32 x double>
  %y = fpext <32 x float> %b to <32 x double>
  %z = fpext <32 x float> %c to <32 x double>
  %p = fmul <32 x double> %x, %y
  %s = fadd <32 x double> %p, %z
  %t = fsub <32 x double> %s, %p
  %u = fsub <32 x double> %s, %t
  %l = fsub <32 x double> %p, %u
  %m = fsub <32 x double> %z, %t
  %error = fadd <32 x double> %l, %m
  %raw = bitcast <32 x double> %s to <32 x i64>
  %towards = bitcast <32 x double> %error to <32 x i64>
  %inexact = fcmp one <32 x double> %error, zeroinitializer
  %last = trunc <32 x i64> %raw to <32 x i1>
  %even = xor <32 x i1> %last, splat (i1 true)
  %change = and <32 x i1> %inexact, %even
  %signs = xor <32 x i64> %raw, %towards
  %other = ashr <32 x i64> %signs, splat (i64 63)
  %step = or <32 x i64> %other, splat (i64 1)
  %none = select <32 x i1> %change, <32 x i64> %step, <32 x i64> zeroinitializer
  %odd = add <32 x i64> %raw, %none
  %r = bitcast <32 x i64> %odd to <32 x double>
  ret <32 x double> %r
}
"""
_FLOAT_FMA_TEXT = """
define internal <32 x float> @fused_v32f32(<32 x float> %a, <32 x float> %b, <32 x float> %c) noinline {
  %odd = call <32 x double> @fused_odd(<32 x float> %a, <32 x float> %b, <32 x float> %c)
  %r = fptrunc <32 x double> %odd to <32 x float>
  ret <32 x float> %r
}
"""
# Which zero an exact sum of zero is depends on the rounding, too.
_ROUNDED_FLOAT_FMA_TEXT = """
declare i32 @llvm.get.rounding()
declare void @llvm.set.rounding(i32)
declare {wide} @llvm.experimental.constrained.fpext.v32f64.v32f32({short}, metadata)
declare {wide} @llvm.experimental.constrained.fmul.v32f64({wide}, {wide}, metadata, metadata)
declare {wide} @llvm.experimental.constrained.fadd.v32f64({wide}, {wide}, metadata, metadata)
declare {short} @llvm.experimental.constrained.fptrunc.v32f32.v32f64({wide}, metadata, metadata)
define internal {short} @fused_v32f32_as_set({short} %a, {short} %b, {short} %c) noinline strictfp {{
  %mode = call i32 @llvm.get.rounding() strictfp
  call void @llvm.set.rounding(i32 1) strictfp
  %odd = call {wide} @fused_odd({short} %a, {short} %b, {short} %c) strictfp
  call void @llvm.set.rounding(i32 %mode) strictfp
  %x = call {wide} @llvm.experimental.constrained.fpext.v32f64.v32f32({short} %a, {quiet}) strictfp
  %y = call {wide} @llvm.experimental.constrained.fpext.v32f64.v32f32({short} %b, {quiet}) strictfp
  %z = call {wide} @llvm.experimental.constrained.fpext.v32f64.v32f32({short} %c, {quiet}) strictfp
  %p = call {wide} @llvm.experimental.constrained.fmul.v32f64({wide} %x, {wide} %y, {any}, {quiet}) strictfp
  %s = call {wide} @llvm.experimental.constrained.fadd.v32f64({wide} %p, {wide} %z, {any}, {quiet}) strictfp
  %raw = bitcast {wide} %odd to <32 x i64>
  %size = shl <32 x i64> %raw, splat (i64 1)
  %nothing = icmp eq <32 x i64> %size, zeroinitializer
  %sum = select <32 x i1> %nothing, {wide} %s, {wide} %odd
  %r = call {short} @llvm.experimental.constrained.fptrunc.v32f32.v32f64({wide} %sum, {any}, {quiet}) strictfp
  ret {short} %r
}}
""".format(
    wide="<32 x double>",
    short="<32 x float>",
    any='metadata !"round.dynamic"',
    quiet='metadata !"fpexcept.ignore"',
)
_DOUBLE_FMA_TEMPLATE = """
declare i32 @llvm.get.rounding()
define internal <32 x double> @{name}(<32 x double> %a, <32 x double> %b, <32 x double> %c) noinline {{
entry:
  %mode = {mode}
  %as = alloca <32 x double>
  %bs = alloca <32 x double>
  %cs = alloca <32 x double>
  store <32 x double> %a, ptr %as
  store <32 x double> %b, ptr %bs
  store <32 x double> %c, ptr %cs
  br label %lane
lane:
  %n = phi i64 [0, %entry], [%n1, %lane]
  %ap = getelementptr i64, ptr %as, i64 %n
  %bp = getelementptr i64, ptr %bs, i64 %n
  %cp = getelementptr i64, ptr %cs, i64 %n
  %x = load i64, ptr %ap
  %y = load i64, ptr %bp
  %z = load i64, ptr %cp
  %one = call i64 @fused_one(i64 %x, i64 %y, i64 %z, i32 %mode)
  store i64 %one, ptr %ap
  %n1 = add i64 %n, 1
  %more = icmp ult i64 %n1, 32
  br i1 %more, label %lane, label %done
done:
  %r = load <32 x double>, ptr %as
  ret <32 x double> %r
}}
"""
# In integers: the exact product and the addend with their highest bits at bit 187, the smaller one moved
# to the other's exponent with a last bit for all that it lost, and the sum rounded once.
_SCALAR_FMA_TEXT = """
declare i192 @llvm.ctlz.i192(i192, i1)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
define internal i192 @fused_moved(i192 %x, i64 %by) noinline {
  %most = call i64 @llvm.smin.i64(i64 %by, i64 191)
  %wide = zext i64 %most to i192
  %moved = lshr i192 %x, %wide
  %back = shl i192 %moved, %wide
  %lost = icmp ne i192 %back, %x
  %last = zext i1 %lost to i192
  %r = or i192 %moved, %last
  ret i192 %r
}
define internal i64 @fused_one(i64 %a, i64 %b, i64 %c, i32 %mode) noinline {
entry:
  %ea0 = lshr i64 %a, 52
  %eb0 = lshr i64 %b, 52
  %ec0 = lshr i64 %c, 52
  %ea = and i64 %ea0, 2047
  %eb = and i64 %eb0, 2047
  %ec = and i64 %ec0, 2047
  %down = icmp eq i32 %mode, 3
  %null = select i1 %down, i64 -9223372036854775808, i64 0
  %ab = xor i64 %a, %b
  %p.sign = icmp slt i64 %ab, 0
  %c.sign = icmp slt i64 %c, 0
  %a.endless = icmp eq i64 %ea, 2047
  %b.endless = icmp eq i64 %eb, 2047
  %c.endless = icmp eq i64 %ec, 2047
  %p.endless = or i1 %a.endless, %b.endless
  br i1 %p.endless, label %special, label %product
special:
  %a.f = bitcast i64 %a to double
  %b.f = bitcast i64 %b to double
  %c.f = bitcast i64 %c to double
  %p.f = fmul double %a.f, %b.f
  %s.f = fadd double %p.f, %c.f
  %s = bitcast double %s.f to i64
  ret i64 %s
product:
  br i1 %c.endless, label %addend, label %finite
addend:
  %c.g = bitcast i64 %c to double
  %c.2 = fadd double %c.g, %c.g
  %c.r = bitcast double %c.2 to i64
  ret i64 %c.r
finite:
  %a.size = shl i64 %a, 1
  %b.size = shl i64 %b, 1
  %c.size = shl i64 %c, 1
  %a.null = icmp eq i64 %a.size, 0
  %b.null = icmp eq i64 %b.size, 0
  %c.null = icmp eq i64 %c.size, 0
  %p.null = or i1 %a.null, %b.null
  br i1 %p.null, label %nothing, label %some
nothing:
  %alike = icmp eq i1 %p.sign, %c.sign
  %c.some = xor i1 %c.null, true
  %c.kept = or i1 %alike, %c.some
  %c.or.0 = select i1 %c.kept, i64 %c, i64 %null
  ret i64 %c.or.0
some:
  %a.m = and i64 %a, 4503599627370495
  %b.m = and i64 %b, 4503599627370495
  %c.m = and i64 %c, 4503599627370495
  %a.normal = icmp ne i64 %ea, 0
  %b.normal = icmp ne i64 %eb, 0
  %c.normal = icmp ne i64 %ec, 0
  %a.lead = select i1 %a.normal, i64 4503599627370496, i64 0
  %b.lead = select i1 %b.normal, i64 4503599627370496, i64 0
  %c.lead = select i1 %c.normal, i64 4503599627370496, i64 0
  %ma = or i64 %a.m, %a.lead
  %mb = or i64 %b.m, %b.lead
  %mc = or i64 %c.m, %c.lead
  %xa = call i64 @llvm.smax.i64(i64 %ea, i64 1)
  %xb = call i64 @llvm.smax.i64(i64 %eb, i64 1)
  %xc = call i64 @llvm.smax.i64(i64 %ec, i64 1)
  %ma.w = zext i64 %ma to i128
  %mb.w = zext i64 %mb to i128
  %p.w = mul i128 %ma.w, %mb.w
  %p.0 = zext i128 %p.w to i192
  %c.0 = zext i64 %mc to i192
  %p.room = call i192 @llvm.ctlz.i192(i192 %p.0, i1 false)
  %c.room = call i192 @llvm.ctlz.i192(i192 %c.0, i1 false)
  %p.up = sub i192 %p.room, 4
  %c.up = sub i192 %c.room, 4
  %p.1 = shl i192 %p.0, %p.up
  %c.1 = shl i192 %c.0, %c.up
  %p.by = trunc i192 %p.up to i64
  %c.by = trunc i192 %c.up to i64
  %p.e0 = add i64 %xa, %xb
  %p.e1 = sub i64 %p.e0, 2150
  %p.e = sub i64 %p.e1, %p.by
  %c.e1 = sub i64 %xc, 1075
  %c.e2 = sub i64 %c.e1, %c.by
  %c.e = select i1 %c.null, i64 -100000, i64 %c.e2
  %e = call i64 @llvm.smax.i64(i64 %p.e, i64 %c.e)
  %p.down = sub i64 %e, %p.e
  %c.down = sub i64 %e, %c.e
  %p = call i192 @fused_moved(i192 %p.1, i64 %p.down)
  %q = call i192 @fused_moved(i192 %c.1, i64 %c.down)
  %same = icmp eq i1 %p.sign, %c.sign
  %plus = add i192 %p, %q
  %minus = sub i192 %p, %q
  %turned = sub i192 %q, %p
  %less = icmp slt i192 %minus, 0
  %gap = select i1 %less, i192 %turned, i192 %minus
  %whole = select i1 %same, i192 %plus, i192 %gap
  %turns = xor i1 %same, true
  %other = and i1 %less, %turns
  %sign = select i1 %other, i1 %c.sign, i1 %p.sign
  %gone = icmp eq i192 %whole, 0
  br i1 %gone, label %cancelled, label %round
cancelled:
  ret i64 %null
round:
  %room = call i192 @llvm.ctlz.i192(i192 %whole, i1 false)
  %up = sub i192 %room, 3
  %top = shl i192 %whole, %up
  %by = trunc i192 %up to i64
  %e.top = sub i64 %e, %by
  %biased = add i64 %e.top, 1211
  %below = sub i64 1, %biased
  %deeper = call i64 @llvm.smax.i64(i64 %below, i64 0)
  %drop.0 = add i64 %deeper, 136
  %drop.1 = call i64 @llvm.smin.i64(i64 %drop.0, i64 190)
  %drop = zext i64 %drop.1 to i192
  %kept = lshr i192 %top, %drop
  %covered = shl i192 %kept, %drop
  %rest = sub i192 %top, %covered
  %before = sub i192 %drop, 1
  %half = shl i192 1, %before
  %q.0 = trunc i192 %kept to i64
  %q.odd = trunc i64 %q.0 to i1
  %over = icmp ugt i192 %rest, %half
  %tie = icmp eq i192 %rest, %half
  %tie.up = and i1 %tie, %q.odd
  %near = or i1 %over, %tie.up
  %inexact = icmp ne i192 %rest, 0
  %positive = xor i1 %sign, true
  %is.near = icmp eq i32 %mode, 1
  %is.up = icmp eq i32 %mode, 2
  %away.up = and i1 %is.up, %positive
  %away.down = and i1 %down, %sign
  %away = or i1 %away.up, %away.down
  %away.now = and i1 %away, %inexact
  %grow = select i1 %is.near, i1 %near, i1 %away.now
  %one = zext i1 %grow to i64
  %q.1 = add i64 %q.0, %one
  %held = call i64 @llvm.smax.i64(i64 %biased, i64 1)
  %held.1 = sub i64 %held, 1
  %exponent = shl i64 %held.1, 52
  %size = add i64 %q.1, %exponent
  %too.large = icmp uge i64 %size, 9218868437227405312
  %endless = or i1 %is.near, %away
  %most = select i1 %endless, i64 9218868437227405312, i64 9218868437227405311
  %size.1 = select i1 %too.large, i64 %most, i64 %size
  %sign.w = zext i1 %sign to i64
  %sign.bit = shl i64 %sign.w, 63
  %r = or i64 %size.1, %sign.bit
  ret i64 %r
}
"""
