"""Texture fetches (``tex``) and surfaces (``suld``, ``sust``) as LLVM IR.

They are counted as reads and writes of global memory, at the row-major addresses of their texels. For an
interpolated fetch the first texel counts.
"""

from __future__ import annotations

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir import checks, layout
from virtualgpu.engine.ir.emit import constant
from virtualgpu.engine.lower.ops import memory_ops
from virtualgpu.engine.lower.ops.textures import fetch, surfaces
from virtualgpu.engine.lower.warp_code import WarpCode
from virtualgpu.errors import NotSupportedError

_GEOMETRIES = {"1d": (1, False), "2d": (2, False), "3d": (3, False), "a1d": (1, True), "a2d": (2, True)}
_ROWS = "[4 x <32 x i32>]"
_MODES = ("trap", "clamp", "zero")


REFUSED = {"tld4", "txq", "suq", "sured"}
ROOTS = {"tex", "suld", "sust"} | REFUSED


def emit(c: WarpCode, i: ir.Instruction) -> bool:
    """Emit an instruction on a texture or a surface; return False for any other instruction."""
    if i.root == "tex":
        _texture(c, i)
    elif i.root in ("suld", "sust"):
        _surface(c, i)
    elif i.root in REFUSED:
        raise _not_supported(i)
    else:
        return False
    return True


def _not_supported(i: ir.Instruction) -> NotSupportedError:
    return NotSupportedError(
        f"The virtual GPU does not do {i.opcode} (line {i.line}). It fetches from textures of one, two and "
        "three dimensions and of layers (tex1Dfetch, tex1D, tex2D, tex3D, tex2DLayered) and reads and writes "
        "their surfaces; pass sizes as arguments, and read neighbours one by one."
    )


def _handles_and_coordinates(
    c: WarpCode, i: ir.Instruction, operand: ir.Operand | None, types: str
) -> tuple[str, str, int]:
    """Return pointers to the lanes' handles and to rows of their coordinates, and the number of rows."""
    if not (isinstance(operand, ir.Vector) and len(operand.items) == 2):
        raise _not_supported(i)
    c.e.declared.update(fetch.DECLARED)
    handle, coordinates = operand.items
    if not (isinstance(handle, ir.Register | ir.Immediate) and isinstance(coordinates, ir.Vector)):
        raise NotSupportedError(
            f"The virtual GPU does not do {i.text!r} (line {i.line}): texture references are gone since CUDA "
            "12. Pass a cp.cuda.texture.TextureObject as a cudaTextureObject_t."
        )
    handles = c.scratch("<32 x i64>")
    c.e.raw(f"store <32 x i64> {c.get(handle, 'u64')}, ptr {handles}")
    rows = c.scratch(_ROWS)
    for n, item in enumerate(coordinates.items):
        kind = "u32" if types == "f32" and n == 0 and "a" in _geometry(i) else types
        value = c.e.cast(c.get(item, kind), "float" if kind == "f32" else "i32", "i32")
        row = c.e.op(f"getelementptr [32 x i32], ptr {rows}, i64 {n}")
        c.e.raw(f"store <32 x i32> {value}, ptr {row}")
    return handles, rows, len(coordinates.items)


def _geometry(i: ir.Instruction) -> str:
    return next((modifier for modifier in i.parts if modifier in _GEOMETRIES), "")


def _texture(c: WarpCode, i: ir.Instruction) -> None:
    e = c.e
    mask = c.executed(i)
    geometry = _geometry(i)
    target = i.operands[0]
    is_known = set(i.parts) <= {"tex", "base", "level", "grad", "v4", geometry, "f32", "s32", "u32"}
    if not geometry or not is_known or not isinstance(target, ir.Vector):
        raise _not_supported(i)
    dimensions, layered = _GEOMETRIES[geometry]
    kind = i.parts[-2]
    coordinates = i.parts[-1]
    channels = tuple(
        n for n, item in enumerate(target.items) if item is not None and memory_ops.is_read(c.function, item)
    ) or (0,)
    handles, rows, _ = _handles_and_coordinates(c, i, i.operands[1], coordinates)
    for support in (
        fetch.OBJECT,
        fetch.INDEX,
        fetch.AXIS,
        fetch.ADDRESS,
        fetch.CHANNEL,
        fetch.CONTRIBUTION,
        fetch.WEIGHTED_SUM,
    ):
        c.add_support(*support)
    name, body = fetch.fetch(dimensions, channels, layered=layered, integer_coordinates=coordinates != "f32")
    c.add_support(name, body)
    addresses = c.scratch("<32 x i64>")
    values = c.scratch(_ROWS)
    e.raw(f"store <32 x i64> zeroinitializer, ptr {addresses}")
    e.raw(f"store {_ROWS} zeroinitializer, ptr {values}")
    bad = e.op(
        f"call i32 @{name}(ptr %ctx, ptr {handles}, ptr {rows}, i32 {mask}, ptr {values}, ptr {addresses})"
    )
    _check_texels(c, i, "ld", 4 * len(channels), bad, handles, addresses, mask)
    for n, item in enumerate(target.items):
        if item is None:
            continue
        row = e.op(f"getelementptr [32 x i32], ptr {values}, i64 {n}")
        value = e.op(f"load <32 x i32>, ptr {row}")
        c.set(item, e.cast(value, "i32", "float") if kind == "f32" else value, kind)


def _check_texels(
    c: WarpCode, i: ir.Instruction, root: str, size: int, bad: str, handles: str, addresses: str, mask: str
) -> str:
    """Emit faults for invalid handles, and check, count and report the access.

    Return the lanes with texels.
    """
    e = c.e
    handle_values = e.op(f"load <32 x i64>, ptr {handles}")
    c.fault_if(bad, layout.BAD_TEXTURE, i.pc, handle_values)
    address = e.op(f"load <32 x i64>, ptr {addresses}")
    has_texel = e.mask_bits(e.compare("ne", "i64", address, constant("i64", 0)))
    inside = e.op(f"and i32 {has_texel}, {mask}")
    access = memory_ops.as_access(i, root, "global", {1: 1, 2: 2, 4: 4, 8: 8}.get(size, 16))
    site = c.site(access)
    check, body = checks.check_global(1, c.options.count, "load" if root == "ld" else "store")
    c.add_support(check, body)
    failed = e.op(
        f"call i1 @{check}(ptr %ctx, <32 x i64> {address}, i32 {inside}, i32 {c.index}, i32 {i.pc}, i32 {site})"
    )
    c.trace_address(address, inside)
    c.leave_on_fault(failed)
    if c.options.observe:
        c.observe(site, address, inside)
    return inside


def _surface(c: WarpCode, i: ir.Instruction) -> None:
    e = c.e
    mask = c.executed(i)
    loads = i.root == "suld"
    geometry = _geometry(i)
    mode = next((modifier for modifier in i.parts if modifier in _MODES), "trap")
    kind = next((modifier for modifier in i.parts if modifier in ("b8", "b16", "b32", "b64")), "")
    if not geometry or not kind or "p" in i.parts:
        raise _not_supported(i)
    dimensions, layered = _GEOMETRIES[geometry]
    value, surface = (i.operands[0], i.operands[1]) if loads else (i.operands[1], i.operands[0])
    items = value.items if isinstance(value, ir.Vector) else (value,)
    width = ir.TYPE_BYTES[kind]
    size = width * len(items)
    handles, rows, _ = _handles_and_coordinates(c, i, surface, "u32")
    for support in (fetch.OBJECT, fetch.INDEX):
        c.add_support(*support)
    name, body = surfaces.surface(dimensions, size, mode, layered=layered)
    c.add_support(name, body)
    addresses = c.scratch("<32 x i64>")
    outside = c.scratch("i32")
    e.raw(f"store <32 x i64> zeroinitializer, ptr {addresses}")
    bad = e.op(
        f"call i32 @{name}(ptr %ctx, ptr {handles}, ptr {rows}, i32 {mask}, ptr {outside}, ptr {addresses})"
    )
    inside = _check_texels(c, i, "ld" if loads else "st", size, bad, handles, addresses, mask)
    if mode == "trap":
        beyond = e.op(f"load i32, ptr {outside}")
        c.fault_if(beyond, layout.OUTSIDE_SURFACE, i.pc)
    address = e.op(f"load <32 x i64>, ptr {addresses}")
    for n, item in enumerate(items):
        element_address = e.binary("add", "i64", address, constant("i64", n * width)) if n else address
        if loads:
            if item is not None:
                c.set(item, memory_ops.gather(c, element_address, inside, kind), kind)
        else:
            memory_ops.scatter(c, c.get(item, kind), element_address, inside, kind)
