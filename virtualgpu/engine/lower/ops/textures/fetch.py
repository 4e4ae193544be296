"""LLVM IR functions that fetch from textures: they convert coordinates to values, lane by lane.

Coordinates and address modes follow the CUDA Programming Guide ("Texture Fetching"). Details that it does not
define follow an H200 (``tests/virtual/test_textures.py``):

* normalized coordinates are cut to 21 bits after the point, then repeated or mirrored, then scaled;
* with interpolation the position between two texels has 8 bits, rounded. The four weights of a plane are integer
  256ths: the product of both fractions is rounded, and the others are the remainders. In three dimensions each of
  the four weights of x and z is divided along y, which is right except for a few ties: one in a hundred fetches
  differs, by a 256th of the difference of two texels;
* a line is the row 0 of a plane, at y = 0: with a border above it, half of an interpolated value;
* integers of 8 bits are converted to 16 bits before they are weighted, and halves are rounded to halves again;
* the border has the bits of its floats, also for integers, and layers below 0 are the last one.
"""

from __future__ import annotations

from itertools import product

from virtualgpu.engine.ir.text import make_field_load, make_odd_rounding
from virtualgpu.model.memory import textures
from virtualgpu.model.memory.textures import find_field_offset

DECLARATIONS = (
    "declare i32 @llvm.smax.i32(i32, i32)",
    "declare i32 @llvm.smin.i32(i32, i32)",
    "declare i32 @llvm.umin.i32(i32, i32)",
    "declare double @llvm.floor.f64(double)",
    "declare double @llvm.maxnum.f64(double, double)",
    "declare double @llvm.minnum.f64(double, double)",
    "declare float @llvm.maxnum.f32(float, float)",
)
# The bound of float coordinates before they are converted to integers.
_COORDINATE_BOUND = "1073741824.0"


def make_load_text(name: str, llvm_type: str, result: str, extra_offset: int = 0) -> str:
    """Return LLVM text that loads the field `name` of the texture object at ``%t``."""
    field_offset = find_field_offset(name) + extra_offset
    return f"  {result}.p = getelementptr i8, ptr %t, i64 {field_offset}\n  {result} = load {llvm_type}, ptr {result}.p\n"


# Return the object of a handle, null if there is none.
OBJECT_FUNCTION = (
    "texture_object",
    f"""
define internal ptr @texture_object(ptr %ctx, i64 %handle) noinline {{
entry:
{make_field_load("textures", "%table.i")}  %table = inttoptr i64 %table.i to ptr
  %place = and i64 %handle, {textures.CAPACITY - 1}
  %at = mul i64 %place, {textures.TEXTURE_DTYPE.itemsize}
  %t = getelementptr i8, ptr %table, i64 %at
{make_load_text("handle", "i64", "%own")}  %same = icmp eq i64 %own, %handle
  %some = icmp ne i64 %handle, 0
  %there = and i1 %same, %some
  %found = select i1 %there, ptr %t, ptr null
  ret ptr %found
}}
""",
)

# Return an index along an axis after the address mode; -1 is the border.
INDEX_FUNCTION = (
    "texture_index",
    f"""
define internal i32 @texture_index(i32 %i, i32 %size, i32 %mode) noinline {{
entry:
  %last = sub i32 %size, 1
  %low = call i32 @llvm.smax.i32(i32 %i, i32 0)
  %clamped = call i32 @llvm.smin.i32(i32 %low, i32 %last)
  %inside = icmp eq i32 %clamped, %i
  %bordered = select i1 %inside, i32 %i, i32 -1
  %rest = srem i32 %i, %size
  %up = add i32 %rest, %size
  %negative = icmp slt i32 %rest, 0
  %wrapped = select i1 %negative, i32 %up, i32 %rest
  %twice = shl i32 %size, 1
  %round0 = srem i32 %i, %twice
  %round.up = add i32 %round0, %twice
  %round.negative = icmp slt i32 %round0, 0
  %round = select i1 %round.negative, i32 %round.up, i32 %round0
  %back0 = sub i32 %twice, 1
  %back = sub i32 %back0, %round
  %second = icmp sge i32 %round, %size
  %mirrored = select i1 %second, i32 %back, i32 %round
  %is.mirror = icmp eq i32 %mode, {textures.MIRROR}
  %is.wrap = icmp eq i32 %mode, {textures.WRAP}
  %is.border = icmp eq i32 %mode, {textures.BORDER}
  %found0 = select i1 %is.border, i32 %bordered, i32 %clamped
  %found1 = select i1 %is.mirror, i32 %mirrored, i32 %found0
  %found = select i1 %is.wrap, i32 %wrapped, i32 %found1
  ret i32 %found
}}
""",
)

# Write the index of a float coordinate, the next index, and the 256ths between them, to %out.
AXIS_FUNCTION = (
    "texture_axis",
    f"""
define internal void @texture_axis(ptr %t, float %x, i32 %axis, ptr %out) noinline {{
entry:
  %axis64 = zext i32 %axis to i64
  %four = mul i64 %axis64, 4
  %sizes = getelementptr i8, ptr %t, i64 {find_field_offset("size")}
  %size.p = getelementptr i8, ptr %sizes, i64 %four
  %size = load i32, ptr %size.p
  %modes = getelementptr i8, ptr %t, i64 {find_field_offset("modes")}
  %mode.p = getelementptr i8, ptr %modes, i64 %four
  %mode0 = load i32, ptr %mode.p
{make_load_text("normalized_coordinates", "i32", "%normal.i")}{make_load_text("interpolated", "i32", "%smooth.i")}  %normal = icmp ne i32 %normal.i, 0
  %smooth = icmp ne i32 %smooth.i, 0
  %is.wrap = icmp eq i32 %mode0, {textures.WRAP}
  %is.mirror = icmp eq i32 %mode0, {textures.MIRROR}
  %periodic = or i1 %is.wrap, %is.mirror
  %plain = xor i1 %normal, true
  %without = and i1 %periodic, %plain
  %mode = select i1 %without, i32 {textures.CLAMP}, i32 %mode0
  %x0 = fpext float %x to double
  %fine.n = fmul double %x0, 2097152.0
  %cut.n = call double @llvm.floor.f64(double %fine.n)
  %cut = fdiv double %cut.n, 2097152.0
  %turn = call double @llvm.floor.f64(double %cut)
  %within = fsub double %cut, %turn
  %half = fmul double %cut, 0.5
  %turns = call double @llvm.floor.f64(double %half)
  %pairs = fmul double %turns, 2.0
  %within.2 = fsub double %cut, %pairs
  %x1 = select i1 %is.mirror, double %within.2, double %cut
  %x2 = select i1 %is.wrap, double %within, double %x1
  %dsize = sitofp i32 %size to double
  %scaled = fmul double %x2, %dsize
  %xs = select i1 %normal, double %scaled, double %x0
  %centred = fsub double %xs, 0.5
  %fine = fmul double %centred, 256.0
  %fine.up = fadd double %fine, 0.5
  %fine.x = select i1 %smooth, double %fine.up, double %xs
  %floor = call double @llvm.floor.f64(double %fine.x)
  %above = call double @llvm.maxnum.f64(double %floor, double -{_COORDINATE_BOUND})
  %bounded = call double @llvm.minnum.f64(double %above, double {_COORDINATE_BOUND})
  %number = fptosi double %bounded to i32
  %texel = ashr i32 %number, 8
  %fraction0 = and i32 %number, 255
  %first = select i1 %smooth, i32 %texel, i32 %number
  %second = add i32 %first, 1
  %i0 = call i32 @texture_index(i32 %first, i32 %size, i32 %mode)
  %i1 = call i32 @texture_index(i32 %second, i32 %size, i32 %mode)
  %alike = icmp eq i32 %i0, %i1
  %rough = xor i1 %smooth, true
  %alone = or i1 %alike, %rough
  %fraction = select i1 %alone, i32 0, i32 %fraction0
  store i32 %i0, ptr %out
  %out1 = getelementptr i32, ptr %out, i64 1
  store i32 %i1, ptr %out1
  %out2 = getelementptr i32, ptr %out, i64 2
  store i32 %fraction, ptr %out2
  ret void
}}
""",
)

# Return the address of a texel; 0 is the border.
ADDRESS_FUNCTION = (
    "texture_place",
    f"""
define internal i64 @texture_place(ptr %t, i32 %x, i32 %y, i32 %z) noinline {{
entry:
  %xy = or i32 %x, %y
  %xyz = or i32 %xy, %z
  %out = icmp slt i32 %xyz, 0
{make_load_text("address", "i64", "%from")}{make_load_text("pitch_bytes", "i64", "%pitch")}{make_load_text("slice_bytes", "i64", "%slice")}{make_load_text("channels", "i32", "%channels")}{make_load_text("channel_bytes", "i32", "%bytes")}  %texel = mul i32 %channels, %bytes
  %texel64 = zext i32 %texel to i64
  %x64 = sext i32 %x to i64
  %y64 = sext i32 %y to i64
  %z64 = sext i32 %z to i64
  %ax = mul i64 %x64, %texel64
  %ay = mul i64 %y64, %pitch
  %az = mul i64 %z64, %slice
  %a1 = add i64 %from, %ax
  %a2 = add i64 %a1, %ay
  %a3 = add i64 %a2, %az
  %place = select i1 %out, i64 0, i64 %a3
  ret i64 %place
}}
""",
)

# Return a channel of the texel at an address, as 32 bits: an extended integer, or a float.
CHANNEL_FUNCTION = (
    "texture_channel",
    f"""
define internal i32 @texture_channel(ptr %t, i64 %place, i32 %channel) noinline {{
entry:
{make_load_text("channels", "i32", "%channels")}{make_load_text("channel_bytes", "i32", "%bytes")}{make_load_text("kind", "i32", "%kind")}{make_load_text("normalized_read", "i32", "%normal.i")}  %there = icmp slt i32 %channel, %channels
  %normal = icmp ne i32 %normal.i, 0
  %is.float = icmp eq i32 %kind, {textures.FLOAT}
  %signed = icmp eq i32 %kind, {textures.SIGNED}
  br i1 %there, label %some, label %none
none:
  ret i32 0
some:
  %on.border = icmp eq i64 %place, 0
  br i1 %on.border, label %border, label %inside
border:
  %channel64 = zext i32 %channel to i64
  %colours = getelementptr i8, ptr %t, i64 {find_field_offset("border")}
  %colour.p = getelementptr float, ptr %colours, i64 %channel64
  %colour = load i32, ptr %colour.p
  ret i32 %colour
inside:
  %skip = mul i32 %channel, %bytes
  %skip64 = zext i32 %skip to i64
  %at = add i64 %place, %skip64
  %p = inttoptr i64 %at to ptr
  switch i32 %bytes, label %word [i32 1, label %byte
    i32 2, label %short]
word:
  %w = load i32, ptr %p, align 1
  ret i32 %w
byte:
  %b = load i8, ptr %p, align 1
  %b.s = sext i8 %b to i32
  %b.u = zext i8 %b to i32
  br label %narrow
short:
  %h = load i16, ptr %p, align 1
  %h.s = sext i16 %h to i32
  %h.u = zext i16 %h to i32
  br i1 %is.float, label %half, label %narrow
half:
  %h.h = bitcast i16 %h to half
  %h.f = fpext half %h.h to float
  %h.r = bitcast float %h.f to i32
  ret i32 %h.r
narrow:
  %s = phi i32 [%b.s, %byte], [%h.s, %short]
  %u = phi i32 [%b.u, %byte], [%h.u, %short]
  %most.s = phi float [127.0, %byte], [32767.0, %short]
  %most.u = phi float [255.0, %byte], [65535.0, %short]
  %v = select i1 %signed, i32 %s, i32 %u
  br i1 %normal, label %share, label %plain
plain:
  ret i32 %v
share:
  %most = select i1 %signed, float %most.s, float %most.u
  %v.f = sitofp i32 %v to float
  %ratio = fdiv float %v.f, %most
  %bounded = call float @llvm.maxnum.f32(float %ratio, float -1.0)
  %bits = bitcast float %bounded to i32
  ret i32 %bits
}}
""",
)


# Return the contribution of a channel to a weighted sum (8-bit integers as 16 bits), and the value of the
# sum.
CONTRIBUTION_FUNCTION = (
    "texture_part",
    f"""
define internal double @texture_part(ptr %t, i64 %place, i32 %channel) noinline {{
entry:
  %bits = call i32 @texture_channel(ptr %t, i64 %place, i32 %channel)
  %value = bitcast i32 %bits to float
  %plain = fpext float %value to double
{make_load_text("normalized_read", "i32", "%share.i")}{make_load_text("kind", "i32", "%kind")}{make_load_text("channel_bytes", "i32", "%bytes")}  %share = icmp ne i32 %share.i, 0
  br i1 %share, label %whole, label %float
float:
  ret double %plain
whole:
  %is.signed = icmp eq i32 %kind, {textures.SIGNED}
  %most = select i1 %is.signed, double 32767.0, double 65535.0
  %on.border = icmp eq i64 %place, 0
  br i1 %on.border, label %border, label %inside
border:
  %edge = fmul double %plain, %most
  ret double %edge
inside:
  %narrow = icmp eq i32 %bytes, 1
  %skip = mul i32 %channel, %bytes
  %skip64 = zext i32 %skip to i64
  %at = add i64 %place, %skip64
  %p = inttoptr i64 %at to ptr
  br i1 %narrow, label %byte, label %short
byte:
  %b = load i8, ptr %p
  %b.s = sitofp i8 %b to double
  %b.u = uitofp i8 %b to double
  %b.s.most = fmul double %b.s, 32767.0
  %b.s.wide = fdiv double %b.s.most, 127.0
  %b.u.wide = fmul double %b.u, 257.0
  %b.wide = select i1 %is.signed, double %b.s.wide, double %b.u.wide
  ret double %b.wide
short:
  %h = load i16, ptr %p, align 1
  %h.s = sitofp i16 %h to double
  %h.u = uitofp i16 %h to double
  %h.wide = select i1 %is.signed, double %h.s, double %h.u
  ret double %h.wide
}}
""",
)
WEIGHTED_SUM_FUNCTION = (
    "texture_mixed",
    f"""
define internal i32 @texture_mixed(ptr %t, double %sum) noinline {{
entry:
{make_load_text("normalized_read", "i32", "%share.i")}{make_load_text("kind", "i32", "%kind")}{make_load_text("channel_bytes", "i32", "%bytes")}  %share = icmp ne i32 %share.i, 0
  %single = fptrunc double %sum to float
  br i1 %share, label %whole, label %float
float:
  %short = icmp eq i32 %bytes, 2
{make_odd_rounding("%sum", "%odd")}  %half = fptrunc float %odd to half
  %half.f = fpext half %half to float
  %value = select i1 %short, float %half.f, float %single
  %value.i = bitcast float %value to i32
  ret i32 %value.i
whole:
  %is.signed = icmp eq i32 %kind, {textures.SIGNED}
  %up = fadd double %sum, 0.5
  %number = call double @llvm.floor.f64(double %up)
  %bounded = call double @llvm.maxnum.f64(double %number, double -32767.0)
  %number.f = fptrunc double %bounded to float
  %most = select i1 %is.signed, float 32767.0, float 65535.0
  %ratio = fdiv float %number.f, %most
  %ratio.i = bitcast float %ratio to i32
  ret i32 %ratio.i
}}
""",
)


def make_fetch_function(
    dimensions: int, channels: tuple[int, ...], *, is_layered: bool, has_integer_coordinates: bool
) -> tuple[str, str]:
    """Return an LLVM function that reads from a texture for the active lanes.

    This LLVM function returns the mask of lanes whose texture handle is invalid.

    ``%coordinates`` points to rows of 32 words, one per dimension (the layer first). ``%out`` points to one
    row per channel, of which those in `channels` are written. ``%places`` receives the address of each lane's
    first texel (0: on the border).
    """
    geometry = f"{'a' if is_layered else ''}{dimensions}d_{'s' if has_integer_coordinates else 'f'}"
    name = f"texture_{geometry}_{''.join(map(str, channels))}"
    axes = range(dimensions)
    is_line = dimensions == 1 and not has_integer_coordinates
    llvm_text = f"""
define internal i32 @{name}(ptr %ctx, ptr %handles, ptr %coordinates, i32 %mask, ptr %out, ptr %places) noinline {{
entry:
  %axes = alloca [9 x i32]
  call void @llvm.memset.p0.i64(ptr %axes, i8 0, i64 36, i1 false)
  br label %loop
loop:
  %rest = phi i32 [%mask, %entry], [%rest1, %next]
  %bad = phi i32 [0, %entry], [%bad1, %next]
  %over = icmp eq i32 %rest, 0
  br i1 %over, label %done, label %lane
done:
  ret i32 %bad
lane:
  %l = call i32 @llvm.cttz.i32(i32 %rest, i1 false)
  %less = sub i32 %rest, 1
  %rest1 = and i32 %rest, %less
  %l64 = zext i32 %l to i64
  %handle.p = getelementptr i64, ptr %handles, i64 %l64
  %handle = load i64, ptr %handle.p
  %t = call ptr @texture_object(ptr %ctx, i64 %handle)
  %gone = icmp eq ptr %t, null
  br i1 %gone, label %unknown, label %known
unknown:
  %bit = shl i32 1, %l
  %bad.more = or i32 %bad, %bit
  br label %next
known:
{make_load_text("is_surface", "i32", "%surface")}  %wrong = icmp ne i32 %surface, 0
  br i1 %wrong, label %unknown, label %fetch
fetch:
"""
    first_row = 0
    if is_layered:
        llvm_text += f"""  %layer.p = getelementptr i32, ptr %coordinates, i64 %l64
  %layer = load i32, ptr %layer.p
{make_load_text("size", "i32", "%layers", 8)}  %layer.last = sub i32 %layers, 1
  %layer.in = call i32 @llvm.umin.i32(i32 %layer, i32 %layer.last)
"""
        first_row = 1
    for axis in axes:
        llvm_text += f"""  %row{axis} = getelementptr [32 x i32], ptr %coordinates, i64 {first_row + axis}
  %c{axis}.p = getelementptr i32, ptr %row{axis}, i64 %l64
"""
        if has_integer_coordinates:
            llvm_text += f"""  %c{axis} = load i32, ptr %c{axis}.p
{make_load_text("size", "i32", f"%size{axis}", 4 * axis)}{make_load_text("modes", "i32", f"%mode{axis}", 4 * axis)}{make_load_text("in_linear_memory", "i32", f"%linear{axis}")}  %is.linear{axis} = icmp ne i32 %linear{axis}, 0
  %used{axis} = select i1 %is.linear{axis}, i32 {textures.BORDER}, i32 %mode{axis}
  %i{axis}.0 = call i32 @texture_index(i32 %c{axis}, i32 %size{axis}, i32 %used{axis})
"""
        else:
            llvm_text += f"""  %c{axis} = load float, ptr %c{axis}.p
  %axis{axis} = getelementptr i32, ptr %axes, i64 {3 * axis}
  call void @texture_axis(ptr %t, float %c{axis}, i32 {axis}, ptr %axis{axis})
"""
            for n, field_suffix in enumerate(("0", "1", "w")):
                llvm_text += f"""  %p{axis}.{field_suffix} = getelementptr i32, ptr %axis{axis}, i64 {n}
  %i{axis}.{field_suffix} = load i32, ptr %p{axis}.{field_suffix}
"""
    if is_line:  # the row 0 of a plane
        llvm_text += """  %axis1 = getelementptr i32, ptr %axes, i64 3
  call void @texture_axis(ptr %t, float 0.0, i32 1, ptr %axis1)
"""
        for n, field_suffix in enumerate(("0", "1", "w")):
            llvm_text += f"""  %p1.{field_suffix} = getelementptr i32, ptr %axis1, i64 {n}
  %i1.{field_suffix} = load i32, ptr %p1.{field_suffix}
"""
        dimensions = 2
    z = "%i2.0" if dimensions > 2 else "0"
    if is_layered:
        z = "%layer.in"
    y = "%i1.0" if dimensions > 1 else "0"
    llvm_text += f"""  %place = call i64 @texture_place(ptr %t, i32 %i0.0, i32 {y}, i32 {z})
  %place.p = getelementptr i64, ptr %places, i64 %l64
  store i64 %place, ptr %place.p
"""
    point_fetch_text = ""
    for channel in channels:
        point_fetch_text += f"""  %v{channel} = call i32 @texture_channel(ptr %t, i64 %place, i32 {channel})
  %o{channel}.r = getelementptr [32 x i32], ptr %out, i64 {channel}
  %o{channel} = getelementptr i32, ptr %o{channel}.r, i64 %l64
  store i32 %v{channel}, ptr %o{channel}
"""
    if has_integer_coordinates:
        llvm_text += point_fetch_text + "  br label %next\n"
    else:
        llvm_text += make_load_text("interpolated", "i32", "%smooth.i")
        llvm_text += f"""  %smooth = icmp ne i32 %smooth.i, 0
  br i1 %smooth, label %interpolate, label %point
point:
{point_fetch_text}  br label %next
interpolate:
{_make_interpolation_text(dimensions, channels, z if is_layered else "")}  br label %next
"""
    next_predecessors = (
        "[%bad, %fetch]" if has_integer_coordinates else "[%bad, %point], [%bad, %interpolate]"
    )
    llvm_text += f"""next:
  %bad1 = phi i32 [%bad.more, %unknown], {next_predecessors}
  br label %loop
}}
"""
    return name, llvm_text


def _make_interpolation_text(dimensions: int, channels: tuple[int, ...], layer_index: str) -> str:
    """Return LLVM text that computes the weighted sum of the 2, 4 or 8 texels around a position."""
    llvm_text = (
        _make_weights_text("%i0.w", "%i2.w", "xz")
        if dimensions > 2
        else _make_weights_text("%i0.w", "%i1.w", "xy")
    )
    sum_values = dict.fromkeys(channels, "0.0")
    for n, corner in enumerate(product((0, 1), repeat=dimensions)):
        indices = [f"%i{axis}.{corner_side}" for axis, corner_side in enumerate(corner)] + ["0"] * (
            3 - dimensions
        )
        if layer_index:
            indices[2] = layer_index
        llvm_text += f"""  %k{n} = call i64 @texture_place(ptr %t, i32 {indices[0]}, i32 {indices[1]}, i32 {indices[2]})
"""
        weight = f"%xy.{corner[0]}{corner[1]}"
        if dimensions > 2:
            plane_weight = f"%xz.{corner[0]}{corner[2]}"
            weight = f"%k{n}.w"
            llvm_text += f"""  %k{n}.y = mul i32 {plane_weight}, %i1.w
  %k{n}.y.up = add i32 %k{n}.y, 128
  %k{n}.y1 = lshr i32 %k{n}.y.up, 8
  %k{n}.y0 = sub i32 {plane_weight}, %k{n}.y1
  {weight} = add i32 %k{n}.y{corner[1]}, 0
"""
        llvm_text += f"""  %k{n}.f = sitofp i32 {weight} to double
  %k{n}.share = fmul double %k{n}.f, 0.00390625
"""
        for channel in channels:
            value_name = f"%k{n}.{channel}"
            llvm_text += f"""  {value_name}.v = call double @texture_part(ptr %t, i64 %k{n}, i32 {channel})
  {value_name}.x = fmul double {value_name}.v, %k{n}.share
  {value_name}.s = fadd double {sum_values[channel]}, {value_name}.x
"""
            sum_values[channel] = f"{value_name}.s"
    for channel in channels:
        llvm_text += f"""  %s{channel} = call i32 @texture_mixed(ptr %t, double {sum_values[channel]})
  %s{channel}.r = getelementptr [32 x i32], ptr %out, i64 {channel}
  %s{channel}.p = getelementptr i32, ptr %s{channel}.r, i64 %l64
  store i32 %s{channel}, ptr %s{channel}.p
"""
    return llvm_text


def _make_weights_text(first_fraction: str, second_fraction: str, name: str) -> str:
    """Return LLVM text that computes the four weights (256ths) of texels from two fractions.

    They are named ``%NAME.ij``, where i belongs to the first fraction.
    """
    return f"""  %{name}.p = mul i32 {first_fraction}, {second_fraction}
  %{name}.p.up = add i32 %{name}.p, 128
  %{name}.11 = lshr i32 %{name}.p.up, 8
  %{name}.10 = sub i32 {first_fraction}, %{name}.11
  %{name}.01 = sub i32 {second_fraction}, %{name}.11
  %{name}.0 = sub i32 256, {first_fraction}
  %{name}.00 = sub i32 %{name}.0, %{name}.01
"""
