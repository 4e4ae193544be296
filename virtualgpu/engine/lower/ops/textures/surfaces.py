"""LLVM IR functions that compute the addresses of bytes in a surface."""

from __future__ import annotations

from virtualgpu.engine.lower.ops.textures.fetch import make_load_text
from virtualgpu.model.memory import textures


def make_address_function(
    dimensions: int, access_bytes: int, border_mode: str, *, is_layered: bool
) -> tuple[str, str]:
    """Return an LLVM function that computes the address of each lane's bytes in a surface.

    If the bytes are outside of the surface, the address is 0.

    It returns the lanes whose handle names no surface; ``%outside`` receives the lanes outside the surface.
    The first coordinate counts bytes; the mode ``clamp`` limits coordinates to the surface.
    """
    name = f"surface_{'a' if is_layered else ''}{dimensions}d_{access_bytes}_{border_mode}"
    llvm_text = f"""
define internal i32 @{name}(ptr %ctx, ptr %handles, ptr %coordinates, i32 %mask, ptr %outside, ptr %places) noinline {{
entry:
  br label %loop
loop:
  %rest = phi i32 [%mask, %entry], [%rest1, %next]
  %bad = phi i32 [0, %entry], [%bad1, %next]
  %out = phi i32 [0, %entry], [%out1, %next]
  %over = icmp eq i32 %rest, 0
  br i1 %over, label %done, label %lane
done:
  store i32 %out, ptr %outside
  ret i32 %bad
lane:
  %l = call i32 @llvm.cttz.i32(i32 %rest, i1 false)
  %less = sub i32 %rest, 1
  %rest1 = and i32 %rest, %less
  %bit = shl i32 1, %l
  %l64 = zext i32 %l to i64
  %handle.p = getelementptr i64, ptr %handles, i64 %l64
  %handle = load i64, ptr %handle.p
  %t = call ptr @texture_object(ptr %ctx, i64 %handle)
  %gone = icmp eq ptr %t, null
  br i1 %gone, label %unknown, label %known
unknown:
  %bad.more = or i32 %bad, %bit
  br label %next
known:
{make_load_text("is_surface", "i32", "%surface")}  %wrong = icmp eq i32 %surface, 0
  br i1 %wrong, label %unknown, label %find
find:
{make_load_text("channels", "i32", "%channels")}{make_load_text("channel_bytes", "i32", "%bytes")}  %texel = mul i32 %channels, %bytes
{make_load_text("size", "i32", "%size0.t")}  %size0.b = mul i32 %size0.t, %texel
  %size0 = sub i32 %size0.b, {access_bytes - 1}
{make_load_text("size", "i32", "%size1", 4)}{make_load_text("size", "i32", "%size2", 8)}{make_load_text("address", "i64", "%at0")}{make_load_text("pitch_bytes", "i64", "%step1")}{make_load_text("slice_bytes", "i64", "%step2")}"""
    axes = [*range(dimensions)]
    row_numbers = [*(n + is_layered for n in axes)]
    if is_layered:
        axes = [*axes, 2]
        row_numbers = [*row_numbers, 0]
    inside_test = "true"
    for axis, row_number in zip(axes, row_numbers, strict=True):
        llvm_text += f"""  %row{axis} = getelementptr [32 x i32], ptr %coordinates, i64 {row_number}
  %c{axis}.p = getelementptr i32, ptr %row{axis}, i64 %l64
  %c{axis} = load i32, ptr %c{axis}.p
  %held{axis} = call i32 @texture_index(i32 %c{axis}, i32 %size{axis}, i32 {textures.CLAMP})
  %in{axis} = icmp eq i32 %held{axis}, %c{axis}
  %all{axis} = and i1 {inside_test}, %in{axis}
  %c{axis}.64 = sext i32 %held{axis} to i64
  %far{axis} = mul i64 %c{axis}.64, {f"%step{axis}" if axis else 1}
"""
        inside_test = f"%all{axis}"
    address = "%at0"
    for axis in axes:
        llvm_text += f"  %sum{axis} = add i64 {address}, %far{axis}\n"
        address = f"%sum{axis}"
    stored_address = address if border_mode == "clamp" else "%kept"
    llvm_text += f"""  %kept = select i1 {inside_test}, i64 {address}, i64 0
  %out.bit = select i1 {inside_test}, i32 0, i32 %bit
  %out.more = or i32 %out, %out.bit
  %place.p = getelementptr i64, ptr %places, i64 %l64
  store i64 {stored_address}, ptr %place.p
  br label %next
next:
  %bad1 = phi i32 [%bad.more, %unknown], [%bad, %find]
  %out1 = phi i32 [%out, %unknown], [%out.more, %find]
  br label %loop
}}
"""
    return name, llvm_text
